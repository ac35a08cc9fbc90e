#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_32_32(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = BackwardShape<32, 32, 2, 2, 2, true, true>;
  launch_backward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
