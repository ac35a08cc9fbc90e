#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_192_128(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = BackwardShape<192, 128, 1, 1, 2, false, false>;
  launch_backward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
