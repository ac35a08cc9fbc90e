#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_256_256(StreamRef stream, const FlashCall& call, DType dtype) {
  using Shape = ForwardShape<256, 256, 1, 2, false, 1>;
  launch_forward<Shape, Shape>(stream, call, dtype);
}

}  // namespace fovea::cuda
