#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_64_128(StreamRef stream, const FlashCall& call, DType dtype) {
  using Dense = ForwardShape<64, 128, 2, 2, false, 2>;
  using Masked = ForwardShape<64, 128, 1, 2, true, 2>;
  launch_forward<Dense, Masked>(stream, call, dtype);
}

}  // namespace fovea::cuda
