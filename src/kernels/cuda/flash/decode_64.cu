#include "kernels/cuda/flash/decode.cuh"

namespace fovea::cuda {

void flash_decode_32_32(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<DecodeShape<32, 32, 32, 3, 4>>(stream, call, split, dtype);
}
void flash_decode_16_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<DecodeShape<16, 64, 16, 4, 4>>(stream, call, split, dtype);
}
void flash_decode_32_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<DecodeShape<32, 64, 16, 3, 4>>(stream, call, split, dtype);
}
void flash_decode_64_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<DecodeShape<64, 64, 16, 4, 3>>(stream, call, split, dtype);
}

}  // namespace fovea::cuda
