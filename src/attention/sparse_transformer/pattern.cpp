#include "attention/sparse_transformer/pattern.h"

#include <algorithm>
#include <string>

#include "attention/option_error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

std::int32_t small(const config::Node& options, std::string_view key) {
  return static_cast<std::int32_t>(options.get_int(key));
}

bool is_far(const TileRule& rule) {
  return rule.left < 0 && rule.block_left < 0;
}

// Both terms: a rule is the union of its terms.
TileRule both(TileRule a, const TileRule& b) {
  a.stride = b.stride;
  a.period = b.period;
  a.column_from = b.column_from;
  a.column_to = b.column_to;
  return a;
}

}  // namespace

SparseFactors::SparseFactors(const AttentionConfig& config, const config::Node& options)
    : causal_(config.causal),
      strided_(options.get_string("pattern") == "strided"),
      length_(small(options, "block")),
      columns_(small(options, "columns")) {
  const std::string combine = options.get_string("combine");
  const bool subblocks = combine == "fixed_subblocks";
  if (subblocks && strided_) {
    refuse_option(options, "combine", "needs model.attention.pattern: fixed");
  }
  if (!subblocks && !strided_ && columns_ > length_) {
    refuse_option(options, "columns", cat("must be at most model.attention.block (", length_, ")"));
  }
  if (combine == "union" || (combine == "heads" && config.n_head == 1)) {
    rules_ = {both(local(), far())};
  } else if (combine == "heads") {
    repeat({local(), far()}, config.n_head);
  } else if (combine == "layers") {
    rules_ = {config.layer % 2 == 0 ? local() : far()};
  } else {
    const std::int32_t wide = small(options, "granularity");
    if (wide > length_) {
      refuse_option(options, "granularity",
                    cat("must be at most model.attention.block (", length_, ")"));
    }
    const bool given = options.find("groups") != nullptr;
    const std::int32_t groups = given ? small(options, "groups") : length_ / wide;
    if (std::int64_t{groups} * wide > length_) {
      refuse_option(options, "groups",
                    cat("that many groups of ", wide,
                        " columns must fit into model.attention.block (", length_, ")"));
    }
    std::vector<TileRule> period;
    period.reserve(static_cast<std::size_t>(groups));
    for (std::int32_t u = 0; u < groups; ++u)
      period.push_back(both(local(), columns(length_ - (u + 1) * wide, length_ - u * wide)));
    repeat(period, config.n_head);
  }
}

TileRule SparseFactors::local() const {
  TileRule rule;
  if (strided_) {
    rule.left = length_ - 1;
    rule.right = causal_ ? 0 : length_ - 1;
  } else {
    rule.block = length_;
    rule.block_left = 0;
  }
  return rule;
}

TileRule SparseFactors::far() const {
  if (!strided_) return columns(length_ - columns_, length_);
  TileRule rule;
  rule.stride = length_;
  return rule;
}

TileRule SparseFactors::columns(std::int32_t from, std::int32_t to) const {
  TileRule rule;
  rule.period = length_;
  rule.column_from = from;
  rule.column_to = to;
  return rule;
}

// A plan repeats its rules over the heads if their number divides that of the heads.
void SparseFactors::repeat(const std::vector<TileRule>& period, int heads) {
  const auto count = static_cast<std::size_t>(heads);
  const std::size_t rules = count % period.size() == 0 ? period.size() : count;
  for (std::size_t h = 0; h < rules; ++h)
    rules_.push_back(period[h % period.size()]);
}

// A new order pays where a head is far and not local. Heads that share keys must agree on it.
bool SparseFactors::reorders(const PlanShape& shape) const {
  const bool agree = rules_.size() == 1 || shape.heads == shape.kv_heads;
  return agree && shape.queries == shape.keys && shape.keys > kPlanTile &&
         std::any_of(rules_.begin(), rules_.end(), is_far);
}

std::vector<SlotRule> SparseFactors::slot_rules(const PlanShape& shape) const {
  std::vector<SlotRule> out;
  for (const TileRule& rule : rules_) {
    out.push_back(!is_far(rule)     ? in_token_order(rule, shape.keys)
                  : rule.stride > 0 ? by_residue(rule, shape.keys)
                                    : columns_first(rule, shape.keys));
  }
  return out;
}

Pattern SparseFactors::pattern() const {
  return [factors = *this](const PlanShape& shape) {
    std::vector<PlanRule> rules;
    if (factors.reorders(shape)) {
      for (SlotRule& slots : factors.slot_rules(shape))
        rules.push_back(std::move(slots.rule));
    } else {
      for (const TileRule& rule : factors.rules_)
        rules.push_back({.rule = rule});
    }
    return rules;
  };
}

SlotOrders SparseFactors::orders() const {
  return [factors = *this](const PlanShape& shape) -> PlanOrders {
    if (!factors.reorders(shape)) return {};
    const std::vector<SlotRule> slots = factors.slot_rules(shape);
    const std::int64_t rows = slots.size() == 1 ? 1 : shape.heads;
    PlanOrders out{.query = Tensor::empty({1, rows, shape.queries}, DType::i32, kCpu),
                   .key = Tensor::empty({1, rows, shape.keys}, DType::i32, kCpu)};
    for (std::int64_t h = 0; h < rows; ++h) {
      const SlotRule& of = slots[static_cast<std::size_t>(h) % slots.size()];
      std::copy(of.queries.begin(), of.queries.end(),
                out.query.data<std::int32_t>() + h * shape.queries);
      std::copy(of.keys.begin(), of.keys.end(), out.key.data<std::int32_t>() + h * shape.keys);
    }
    return out;
  };
}

// Keys below `end` that the far term shows the query at position p.
std::int64_t SparseFactors::far_below(const TileRule& rule, std::int64_t p,
                                      std::int64_t end) const {
  const std::int64_t l = length_;
  if (rule.stride > 0) return end <= p % l ? 0 : (end - 1 - p % l) / l + 1;
  if (rule.period == 0) return 0;
  const std::int64_t wide = rule.column_to - rule.column_from;
  return end / l * wide + std::clamp<std::int64_t>(end % l - rule.column_from, 0, wide);
}

// Of the query at position p: the local keys, and of the others those behind the local ones. Under
// causality keys end at p.
double SparseFactors::row_pairs(const TileRule& rule, std::int64_t p, std::int64_t keys) const {
  const std::int64_t l = length_, end = causal_ ? p + 1 : keys;
  std::int64_t local_begin = p, local_end = p;
  if (rule.left >= 0) {
    local_begin = std::max<std::int64_t>(p - rule.left, 0);
    local_end = std::min(p + rule.right + 1, end);
  } else if (rule.block_left >= 0) {
    local_begin = p / l * l;
    local_end = std::min(local_begin + l, end);
  }
  std::int64_t count = local_end - local_begin;
  count +=
      far_below(rule, p, end) - (far_below(rule, p, local_end) - far_below(rule, p, local_begin));
  return static_cast<double>(count);
}

double SparseFactors::pairs(std::int64_t queries, std::int64_t keys) const {
  double sum = 0;
  for (const TileRule& rule : rules_) {
    for (std::int64_t p = std::max<std::int64_t>(keys - queries, 0); p < keys; ++p)
      sum += row_pairs(rule, p, keys);
  }
  return sum / static_cast<double>(rules_.size());
}

// With the summary columns in front, a query tile works on those that its last query may see.
double SparseFactors::tiled_columns(const TileRule& rule, std::int64_t tokens) const {
  double sum = 0;
  for (std::int64_t first = 0; first < tokens; first += kPlanTile) {
    const std::int64_t end = std::min(first + kPlanTile, tokens);
    const std::int64_t seen = far_below(rule, 0, causal_ ? end : tokens);
    sum += static_cast<double>((end - first) * std::min(plan_tiles(seen) * kPlanTile, tokens));
  }
  return sum;
}

double SparseFactors::tiled_pairs(const PlanShape& shape) const {
  Stream nothing_runs(kCpu, 1);
  double sum = 0;
  if (!reorders(shape)) {
    return AttentionPlan(shape, pattern()(shape), kMeta, nothing_runs).count_tiled_pairs();
  }
  PlanShape one = shape;
  one.heads = one.kv_heads = 1;
  for (const TileRule& rule : rules_) {
    if (rule.period > 0 && is_far(rule)) {
      sum += tiled_columns(rule, shape.keys);
    } else if (rule.stride > 0) {
      SlotRule slots = by_residue(rule, shape.keys);
      const Tensor order = Tensor::empty({1, 1, shape.keys}, DType::i32, kCpu);
      std::copy(slots.keys.begin(), slots.keys.end(), order.data<std::int32_t>());
      sum += AttentionPlan(one, {slots.rule}, kCpu, nothing_runs, order, order).count_tiled_pairs();
    } else {
      sum += AttentionPlan(one, {{.rule = rule}}, kMeta, nothing_runs).count_tiled_pairs();
    }
  }
  return sum / static_cast<double>(rules_.size());
}

}  // namespace fovea::attention
