#pragma once
// ListOps expressions drawn as those of Long Range Arena were.

#include <cstdint>
#include <vector>

#include "data/config.h"
#include "data/listops_expression.h"

namespace fovea::data::listops {

// Draws trees, numbered from 0; each is a pure function of the seed and its number.
//   tree(depth): if depth < max_depth, with probability 1/4 a list: its arity is uniform in
//   {2, ..., max_args}, its arguments are tree(depth + 1), its operator is one of four, uniform.
//   Else a digit, uniform. The root is at depth 1.
// A tree counts if min_length < tokens < max_length and no counted one before it is the same.
// Source: data.md 5.2.
class Generator {
 public:
  // Throws ConfigError for settings that no tree can meet.
  Generator(const ListOpsConfig& config, std::uint64_t seed);

  // Tree `number`, if its length fits: then `into` has its tokens. Else -1, and `into` is not to be
  // used. Returns its value.
  int draw(std::uint64_t number, Expression& into) const;
  // The numbers of the first `count` trees that count. Throws ConfigError if the settings allow too
  // few different ones. `threads`: no bit depends on it.
  std::vector<std::uint64_t> first(std::int64_t count, int threads) const;

 private:
  ListOpsConfig config_;
  std::uint64_t seed_;
};

}  // namespace fovea::data::listops
