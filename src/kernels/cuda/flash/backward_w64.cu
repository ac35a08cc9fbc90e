#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_w64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_backward<BackwardShape<64, 2, 2, true>>(stream, call, dtype);
}

}  // namespace fovea::cuda
