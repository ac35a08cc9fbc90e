#include "kernels/cuda/flash/forward.cuh"

namespace fovea::cuda {

void flash_forward_band_128_128(StreamRef stream, const FlashCall& call, DType dtype) {
  using Dense = ForwardShape<128, 128, 2, 2, false, 2>;
  using Masked = ForwardShape<128, 128, 1, 2, true, 1>;
  launch_forward<Dense::Banded, Masked::Banded>(stream, call, dtype);
}

}  // namespace fovea::cuda
