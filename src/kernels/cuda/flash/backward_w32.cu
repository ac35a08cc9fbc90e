#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_w32(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_backward<BackwardShape<32, 2, 2, true>>(stream, call, dtype);
}

}  // namespace fovea::cuda
