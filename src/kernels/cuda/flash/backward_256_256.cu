#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_256_256(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = BackwardShape<256, 256, 1, 1, 1, false, false, true, 32>;
  launch_backward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
