#pragma once
// Tokens of one segment side by side.

#include <cstdint>
#include <vector>

#include "core/view.h"

namespace fovea::cpu::FOVEA_ISA {

inline bool is_valid(const View& valid, std::int64_t b, std::int64_t i) {
  return !valid || valid.ptr<std::uint8_t>()[b * valid.stride[0] + i * valid.stride[1]] != 0;
}

// Tokens [first, first + count) of one segment. An invalid token, whose id means nothing, belongs
// to the run before it.
struct TokenRun {
  std::int32_t id;
  std::int64_t first, count;
};

// The runs of sample b; one run if `segments` is empty.
inline std::vector<TokenRun> token_runs(const View& segments, const View& valid, std::int64_t b,
                                        std::int64_t n) {
  std::vector<TokenRun> runs;
  bool named = false;  // whether the last run has met a valid token, and so its id
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t id =
        segments ? segments.ptr<std::int32_t>()[b * segments.stride[0] + i * segments.stride[1]]
                 : 0;
    const bool real = is_valid(valid, b, i);
    if (runs.empty() || (real && named && id != runs.back().id)) {
      runs.push_back({id, i, 0});
      named = false;
    }
    if (real && !named) {
      runs.back().id = id;
      named = true;
    }
    ++runs.back().count;
  }
  return runs;
}

}  // namespace fovea::cpu::FOVEA_ISA
