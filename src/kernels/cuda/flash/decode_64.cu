#include "kernels/cuda/flash/decode.cuh"

namespace fovea::cuda {

void flash_decode_32_32(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<32, 32, 4>(stream, call, split, dtype);
}
void flash_decode_16_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<16, 64, 4>(stream, call, split, dtype);
}
void flash_decode_32_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<32, 64, 4>(stream, call, split, dtype);
}
void flash_decode_64_64(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                        DType dtype) {
  launch_decode<64, 64, 4>(stream, call, split, dtype);
}

}  // namespace fovea::cuda
