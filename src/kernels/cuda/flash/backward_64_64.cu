#include "kernels/cuda/flash/backward.cuh"

namespace fovea::cuda {

void flash_backward_64_64(StreamRef stream, const FlashCall& call, DType dtype) {
  using Dense = BackwardShape<64, 64, 2, 2, 2, true, true>;
  using Masked = BackwardShape<64, 64, 1, 2, 2, true, true>;
  launch_backward<Dense, Masked>(stream, call, dtype);
}

}  // namespace fovea::cuda
