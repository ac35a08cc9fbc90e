#include "kernels/cuda/flash/decode.cuh"

namespace fovea::cuda {

void flash_decode_16_128(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                         DType dtype) {
  launch_decode<DecodeShape<16, 128, 16, 3, 3>>(stream, call, split, dtype);
}
void flash_decode_32_128(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                         DType dtype) {
  launch_decode<DecodeShape<32, 128, 16, 3, 3>>(stream, call, split, dtype);
}
void flash_decode_64_128(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                         DType dtype) {
  launch_decode<DecodeShape<64, 128, 16, 3, 3>>(stream, call, split, dtype);
}
void flash_decode_128_128(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                          DType dtype) {
  launch_decode<DecodeShape<128, 128, 16, 2, 3>>(stream, call, split, dtype);
}

}  // namespace fovea::cuda
