#pragma once
// Walks two views of one shape side by side, in the longest runs their strides allow.

#include <cstdint>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

// Two views without axes of size 1, neighbouring axes joined where both views allow it. rank >= 1.
struct Pair {
  int rank = 1;
  std::int64_t dim[kMaxRank] = {1};
  std::int64_t to[kMaxRank] = {1};  // strides in elements
  std::int64_t from[kMaxRank] = {1};
};

inline Pair join_axes(const View& to, const View& from) {
  Pair out;
  int rank = 0;
  for (int i = 0; i < to.rank; ++i) {
    if (to.dim[i] == 1) continue;
    const int last = rank - 1;
    if (rank > 0 && out.to[last] == to.stride[i] * to.dim[i] &&
        out.from[last] == from.stride[i] * to.dim[i]) {
      out.dim[last] *= to.dim[i];
    } else {
      out.dim[rank++] = to.dim[i];
    }
    out.to[rank - 1] = to.stride[i];
    out.from[rank - 1] = from.stride[i];
  }
  if (rank > 0) out.rank = rank;
  return out;
}

// One run: n elements, at these offsets and strides.
struct Run {
  std::int64_t to, from, n, to_stride, from_stride;
  bool contiguous() const { return to_stride == 1 && from_stride == 1; }
};

// Calls fn(run) for runs that cover the pair, in parallel; a run has at most kGrain elements.
template <class F>
void each_run(StreamRef stream, const Pair& pair, F&& fn) {
  const int inner = pair.rank - 1;
  const std::int64_t pieces = (pair.dim[inner] + kGrain - 1) / kGrain;
  std::int64_t runs = pieces;
  for (int i = 0; i < inner; ++i)
    runs *= pair.dim[i];
  parallel_for(stream, runs, grain_rows(pair.dim[inner]),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const std::int64_t start = r % pieces * kGrain, left = pair.dim[inner] - start;
                   Run run{start * pair.to[inner], start * pair.from[inner],
                           left < kGrain ? left : kGrain, pair.to[inner], pair.from[inner]};
                   std::int64_t row = r / pieces;
                   for (int i = inner - 1; i >= 0; --i) {
                     run.to += row % pair.dim[i] * pair.to[i];
                     run.from += row % pair.dim[i] * pair.from[i];
                     row /= pair.dim[i];
                   }
                   fn(run);
                 }
               });
}

}  // namespace fovea::cpu::FOVEA_ISA
