#include "attention/longformer/pattern.h"

#include <algorithm>
#include <string>

#include "attention/option_error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

using config::Node;

constexpr std::int64_t kWidest = 1 << 21, kMostDilated = 1 << 16, kFarthest = 1 << 30;

// A value and where it stands: "window", or "window[1]" in a list.
struct Entry {
  const Node* node;
  std::string path;
};

std::vector<Entry> entries_of(const Entry& list) {
  std::vector<Entry> out;
  for (const Node& item : list.node->items())
    out.push_back({&item, cat(list.path, "[", out.size(), "]")});
  return out;
}

bool is_list(const Node& node) {
  return node.kind() == Node::Kind::list;
}

// This layer's entry of a list with one for each layer.
Entry entry_of_layer(const Node& options, std::string_view key, const AttentionConfig& config) {
  const std::vector<Node>& items = options.find(key)->items();
  const auto layer = static_cast<std::size_t>(config.layer),
             layers = static_cast<std::size_t>(config.n_layer);
  if (layer >= items.size() || (layers > 1 && items.size() != layers)) {
    refuse_option(options, key,
                  cat("with ", items.size(), " entries it must have one for each of the ",
                      std::max(layers, layer + 1), " layers"));
  }
  return entries_of({options.find(key), std::string(key)})[layer];
}

std::int64_t number(const Node& options, const Entry& entry, std::int64_t low, std::int64_t high) {
  const std::int64_t n = entry.node->as_int(cat("model.attention.", entry.path));
  if (n < low || n > high)
    refuse_entry(options, *entry.node, entry.path,
                 cat("must be an integer in [", low, ", ", high, "]"));
  return n;
}

// The two-sided width of this layer's windows.
std::int64_t window_of(const AttentionConfig& config, const Node& options) {
  Entry entry{options.find("window"), "window"};
  if (is_list(*entry.node)) entry = entry_of_layer(options, "window", config);
  const std::int64_t width = number(options, entry, 0, kWidest);
  if (width % 2 != 0)
    refuse_entry(options, *entry.node, entry.path, "must be even: it is a two-sided width");
  return width;
}

// One dilation for all heads of this layer, or one for each.
std::vector<std::int64_t> dilations_of(const AttentionConfig& config, const Node& options) {
  constexpr std::string_view kKey = "dilation";
  Entry entry{options.find(kKey), std::string(kKey)};
  const std::vector<Node>& items = entry.node->items();
  if (is_list(*entry.node) && std::any_of(items.begin(), items.end(), is_list))
    entry = entry_of_layer(options, kKey, config);
  if (!is_list(*entry.node)) return {number(options, entry, 1, kMostDilated)};
  std::vector<std::int64_t> out;
  for (const Entry& item : entries_of(entry))
    out.push_back(number(options, item, 1, kMostDilated));
  if (out.size() != static_cast<std::size_t>(config.n_head)) {
    refuse_entry(options, *entry.node, entry.path,
                 cat("with ", out.size(), " entries it must have one for each of the ",
                     config.n_head, " heads"));
  }
  return out;
}

std::vector<std::int64_t> globals_of(const AttentionConfig& config, const Node& options) {
  std::vector<std::int64_t> out;
  for (const Entry& item : entries_of({options.find("global_tokens"), "global_tokens"}))
    out.push_back(number(options, item, 0, config.max_len - 1));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Bits of those of `positions` - `offset` that lie in [0, n), as pack_flags makes them.
Tensor flags_of(const std::vector<std::int64_t>& positions, std::int64_t offset, std::int64_t n) {
  const std::int64_t words = plan_tiles(n);
  Tensor bits = Tensor::from(std::vector<double>(static_cast<std::size_t>(words), 0.0), {1, words},
                             DType::i64);
  for (const std::int64_t position : positions) {
    const std::int64_t at = position - offset;
    if (at >= 0 && at < n)
      bits.view().ptr<std::uint64_t>()[at / kPlanTile] |= std::uint64_t{1} << (at % kPlanTile);
  }
  return bits;
}

}  // namespace

LongformerPattern::LongformerPattern(const AttentionConfig& config, const Node& options)
    : causal_(config.causal), globals_(globals_of(config, options)) {
  // A causal window has the same number of keys, all of them on the left.
  const std::int64_t width = window_of(config, options), reach = causal_ ? width : width / 2;
  for (const std::int64_t dilation : dilations_of(config, options)) {
    TileRule rule;
    rule.left = static_cast<std::int32_t>(std::min(reach * dilation, kFarthest));
    rule.right = causal_ ? 0 : rule.left;
    rule.dilation = static_cast<std::int32_t>(dilation);
    windows_.push_back(rule);
  }
}

bool LongformerPattern::is_prefix() const {
  return globals_.empty() || globals_.back() + 1 == static_cast<std::int64_t>(globals_.size());
}

bool LongformerPattern::is_global(std::int64_t position) const {
  return std::binary_search(globals_.begin(), globals_.end(), position);
}

bool LongformerPattern::meets_global(std::int64_t queries, std::int64_t keys) const {
  const auto next = std::lower_bound(globals_.begin(), globals_.end(), keys - queries);
  return next != globals_.end() && *next < keys;
}

Pattern LongformerPattern::local_pattern() const {
  return [pattern = *this](const PlanShape& shape) {
    std::vector<PlanRule> rules;
    for (const TileRule& window : pattern.windows_) {
      PlanRule rule{.rule = window};
      if (pattern.is_prefix())
        rule.rule.first_keys = static_cast<std::int32_t>(pattern.globals_.size());
      else
        rule.key_flags = flags_of(pattern.globals_, 0, shape.keys);
      rules.push_back(std::move(rule));
    }
    return rules;
  };
}

Pattern LongformerPattern::global_pattern() const {
  return [pattern = *this](const PlanShape& shape) {
    PlanRule rule;
    if (pattern.is_prefix())
      rule.rule.first_queries = static_cast<std::int32_t>(pattern.globals_.size());
    else
      rule.query_flags = flags_of(pattern.globals_, shape.keys - shape.queries, shape.queries);
    return std::vector<PlanRule>{rule};
  };
}

double LongformerPattern::local_pairs(std::int64_t queries, std::int64_t keys) const {
  std::int64_t sum = 0;
  for (const TileRule& window : windows_) {
    for (std::int64_t p = std::max<std::int64_t>(keys - queries, 0); p < keys; ++p) {
      if (is_global(p)) continue;
      const std::int64_t s = window.dilation, left = std::min<std::int64_t>(window.left, p) / s,
                         right = std::min<std::int64_t>(window.right, keys - 1 - p) / s;
      sum += left + right + 1;
      for (const std::int64_t g : globals_) {
        if (g >= keys || (causal_ && g > p)) break;
        const bool in_window = (p - g) % s == 0 && g >= p - window.left && g <= p + window.right;
        sum += in_window ? 0 : 1;
      }
    }
  }
  return static_cast<double>(sum) / static_cast<double>(windows_.size());
}

double LongformerPattern::global_pairs(std::int64_t queries, std::int64_t keys) const {
  std::int64_t sum = 0;
  for (const std::int64_t g : globals_) {
    if (g >= std::max<std::int64_t>(keys - queries, 0) && g < keys) sum += causal_ ? g + 1 : keys;
  }
  return static_cast<double>(sum);
}

}  // namespace fovea::attention
