#include "kernels/cuda/flash/ordered.cuh"

namespace fovea::cuda {

// Measured at B1 H16 N16384 D64 causal: 3.19 ms; with two stages and one thread that adds dQ 3.82,
// with dK, dQ and the next dP^T under way while exponentials are taken 3.49.
void flash_ordered_32_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<32, 64, 3, 200>>(stream, call, dtype);
}
void flash_ordered_64_64(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<64, 64, 3, 200>>(stream, call, dtype);
}

}  // namespace fovea::cuda
