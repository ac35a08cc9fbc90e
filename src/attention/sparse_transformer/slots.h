#pragma once
// The far factors in another order of tokens, in which what they see lies together: residue classes
// one behind the other for a stride, summary columns before all others for fixed ones. A tile then
// holds few pairs in vain. Source: baselines.md 5, implementation note.

#include <cstdint>
#include <vector>

#include "autograd/ops/attention_plan.h"

namespace fovea::attention {

// One rule in slots, and which token each slot holds.
struct SlotRule {
  PlanRule rule = {};
  std::vector<std::int32_t> queries = {}, keys = {};
};

// `rule` as it is: slots are tokens.
SlotRule in_token_order(const TileRule& rule, std::int64_t tokens);
// A rule of which only `stride` is set.
SlotRule by_residue(const TileRule& rule, std::int64_t tokens);
// A rule of which only `period` and its columns are set.
SlotRule columns_first(const TileRule& rule, std::int64_t tokens);

}  // namespace fovea::attention
