#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_192_128(StreamRef stream, const FlashCall& call, DType dtype) {
  using Dense = ForwardShape<192, 128, 2, 2, false, 1>;
  using Masked = ForwardShape<192, 128, 1, 2, false, 1>;
  launch_forward<Dense, Masked>(stream, call, dtype);
}

}  // namespace fovea::cuda
