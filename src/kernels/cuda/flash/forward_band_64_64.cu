#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_band_64_64(StreamRef stream, const FlashCall& call, DType dtype) {
  using Dense = ForwardShape<64, 64, 2, 2, true, 2>;
  using Masked = ForwardShape<64, 64, 2, 2, false, 2>;
  launch_forward<Dense::Banded, Masked::Banded>(stream, call, dtype);
}

}  // namespace fovea::cuda
