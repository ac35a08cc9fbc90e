#pragma once
// What every attention method must keep, tried on the method itself. Driven by its AttentionSpec
// alone: a new method is checked without a line about it. Source: baselines.md 1, 21.

#include <string>
#include <vector>

#include "attention/registry.h"

namespace fovea::attention {

struct ContractRow {
  std::string check;       // "causal: gradient"
  bool applicable = true;  // false: the method does not promise it; note says what
  bool passed = true;      // value <= bound
  double value = 0, bound = 0;
  std::string note;
};

// Runs every check in each form the method has (bidirectional, causal, cross). `options` is a map
// for model.attention, over the spec's example. Deterministic; about half a second on one core for
// an exact method. A check that throws is a failed row with the message. Throws ConfigError for
// options that are wrong.
std::vector<ContractRow> check_contract(const AttentionSpec& spec,
                                        const config::Node& options = {});

}  // namespace fovea::attention
