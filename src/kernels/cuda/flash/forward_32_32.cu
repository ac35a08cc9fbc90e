#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_32_32(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = ForwardShape<32, 32, 2, 2, true, 2>;
  launch_forward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
