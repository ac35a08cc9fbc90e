#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_128_128(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = BackwardShape<128, 128, 1, 1, 2, true, true>;
  launch_backward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
