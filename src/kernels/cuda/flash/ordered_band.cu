#include "kernels/cuda/flash/ordered.cuh"

namespace fovea::cuda {

void flash_ordered_band_32_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<32, 64, 3, 200>::Banded>(stream, call, dtype);
}
void flash_ordered_band_64_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<64, 64, 3, 200>::Banded>(stream, call, dtype);
}
void flash_ordered_band_128_128(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<128, 128, 2, 232>::Banded>(stream, call, dtype);
}

}  // namespace fovea::cuda
