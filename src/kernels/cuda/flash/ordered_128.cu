#include "kernels/cuda/flash/ordered.cuh"

namespace fovea::cuda {

void flash_ordered_32_128(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<32, 128, 2, 216>>(stream, call, dtype);
}
void flash_ordered_64_128(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<64, 128, 2, 216>>(stream, call, dtype);
}
void flash_ordered_128_128(StreamRef stream, const FlashCall& call, DType dtype) {
  launch_ordered<OrderedShape<128, 128, 2, 232>>(stream, call, dtype);
}

std::size_t ordered_bytes(const FlashCall& call, int padded_width) {
  const std::size_t tiles = static_cast<std::size_t>(call.batch) *
                            static_cast<std::size_t>(call.heads) *
                            static_cast<std::size_t>(call.padded_queries / kOrderedQueries);
  return sizeof(float) * kOrderedQueries * static_cast<std::size_t>(padded_width) * tiles +
         sizeof(int) * (tiles + 1);
}

}  // namespace fovea::cuda
