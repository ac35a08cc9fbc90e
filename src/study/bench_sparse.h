#pragma once
// `fovea bench sparse`: from which share of zeros a product with a fixed sparse matrix is faster
// than the dense one of the same sizes.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "study/gpu_state.h"

namespace fovea::study {

// y [rows, out] = x [rows, in] S, both ways.
struct SparseTime {
  std::int64_t rows = 0, in = 0, out = 0, entries = 0;
  double sparse_ms = 0, dense_ms = 0;
  GpuState gpu;  // during the sparse one

  double sparsity() const;  // the share of zeros, in [0, 1)
};

// One head's projection (64 to 16 and to 32) and one of the model's width (768 to 192), each with
// about 70, 80, 90 and 95 % zeros: every row of S has equally many entries, at least one. bf16 and
// 65,536 rows on a GPU, fp32 and 4,096 on the CPU. The two are timed in turn.
std::vector<SparseTime> bench_sparse(Stream& stream);

// The share of zeros at which both take equally long, between those measured of one size,
// ascending; nothing if the sparse product is slower at the last. 0: it is faster at all of them.
std::optional<double> break_even(std::span<const SparseTime> times);

std::string json_of(const std::vector<SparseTime>& times);  // a list
std::string text_of(const std::vector<SparseTime>& times);

}  // namespace fovea::study
