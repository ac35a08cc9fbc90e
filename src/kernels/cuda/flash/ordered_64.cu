#include "kernels/cuda/flash/ordered.cuh"

namespace fovea::cuda {

void flash_ordered_32_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<32, 64, 2, 200>>(stream, call, dtype);
}
void flash_ordered_64_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<64, 64, 2, 200>>(stream, call, dtype);
}

}  // namespace fovea::cuda
