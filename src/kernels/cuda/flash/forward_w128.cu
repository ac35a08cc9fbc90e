#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_w128(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_forward<ForwardShape<128, 64, 2, 2, false>, ForwardShape<128, 64, 1, 2, true>>(
      stream, call, dtype);
}

}  // namespace fovea::cuda
