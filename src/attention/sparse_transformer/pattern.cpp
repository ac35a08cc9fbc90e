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

Pattern SparseFactors::pattern() const {
  std::vector<PlanRule> rules;
  for (const TileRule& rule : rules_)
    rules.push_back({.rule = rule});
  return [rules](const PlanShape&) { return rules; };
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
  // Keys below x that the far term shows.
  const auto far_below = [&](std::int64_t x) -> std::int64_t {
    if (rule.stride > 0) return x <= p % l ? 0 : (x - 1 - p % l) / l + 1;
    if (rule.period == 0) return 0;
    const std::int64_t wide = rule.column_to - rule.column_from;
    return x / l * wide + std::clamp<std::int64_t>(x % l - rule.column_from, 0, wide);
  };
  count += far_below(end) - (far_below(local_end) - far_below(local_begin));
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

}  // namespace fovea::attention
