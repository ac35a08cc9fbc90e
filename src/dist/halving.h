#pragma once
// The upper levels of the one gradient tree (dist/tree.h), across ranks: rank pairs at distance 1
// are added first, then at distance 2, 4, ... By recursive halving and doubling, which moves the
// bytes of a ring. The number of ranks is a power of two. Source: Thakur, Rabenseifner, Gropp 2005.

#include <cstdint>

#include "core/tensor.h"
#include "dist/communicator.h"

namespace fovea::dist {

// Elements [begin, end) of a flat buffer.
struct Shard {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The part of [0, elements) that tree_reduce_scatter leaves complete on `rank`: whole multiples of
// `unit` elements, except where the buffer ends; empty where there are fewer units than ranks.
// Ranks' parts partition the buffer; they lie in bit-reversed order of the ranks.
Shard shard_of(std::int64_t elements, std::int64_t unit, int rank, int size);

// values [n], contiguous, f32 or f64: in place, its sum over all ranks, the same bits on each.
// scratch: of the same dtype, at least n elements where n is below kWholeExchange; else its size is
// that of the pieces which are exchanged at once, the same on all ranks: ceil(n / 2) is best.
inline constexpr std::int64_t kWholeExchange = 4096;
void tree_all_reduce(Communicator& ranks, const Tensor& values, const Tensor& scratch,
                     Stream& stream);
// Only the first half of it: afterwards shard_of(n, unit, ...) of this rank holds the sum and the
// rest is undefined. scratch: as above, not empty.
void tree_reduce_scatter(Communicator& ranks, const Tensor& values, std::int64_t unit,
                         const Tensor& scratch, Stream& stream);
// The second half: every rank's shard goes to all.
void tree_all_gather(Communicator& ranks, const Tensor& values, std::int64_t unit, Stream& stream);

}  // namespace fovea::dist
