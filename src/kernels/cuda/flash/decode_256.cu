#include "kernels/cuda/flash/decode.cuh"

namespace fovea::cuda {

void flash_decode_192_128(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                          DType dtype) {
  launch_decode<DecodeShape<192, 128, 16, 2, 2>>(stream, call, split, dtype);
}
void flash_decode_256_256(StreamRef stream, const FlashCall& call, const FlashSplit& split,
                          DType dtype) {
  launch_decode<DecodeShape<256, 256, 16, 2, 1>>(stream, call, split, dtype);
}

}  // namespace fovea::cuda
