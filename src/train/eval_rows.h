#pragma once
// How many windows an evaluation computes at once, so that no bit depends on how many were asked
// for.

#include <cstdint>

namespace fovea::train {

// The bits of a row depend on its place within the 128 rows that a product computes at a time
// (kernels/cpu/gemm.cpp). So windows of `length` tokens are computed in groups that begin at a
// multiple of that, or, where such a group would be too large, each alone. Windows in a group:
std::int64_t eval_group(std::int64_t length);
// Windows in a batch: `asked`, rounded up to whole groups; 1 where windows are computed alone.
std::int64_t eval_rows(std::int64_t asked, std::int64_t length);

}  // namespace fovea::train
