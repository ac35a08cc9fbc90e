#include "attention/bigbird/pattern.h"

#include <algorithm>
#include <set>

#include "attention/length_option.h"
#include "attention/option_error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

// Places in a stream: 2^8 draws a row, 2^32 rows a head.
constexpr int kDrawBits = 8, kRowBits = 32;

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;

}  // namespace

BigBirdPattern::BigBirdPattern(const AttentionConfig& config, const config::Node& options)
    : causal_(config.causal),
      block_(options.get_int("block")),
      random_(options.get_int("random_blocks")),
      window_(options.get_int("causal_window_blocks")),
      range_(options.get_string("random_range") == "all"
                 ? kNoToken
                 : options.get_int("random_range") / block_),
      longest_(whole_length_option(config, options, "max_len")),
      blocks_((longest_ + block_ - 1) / block_) {
  if (blocks_ > kMostBlocks) {
    refuse_option(options, "block",
                  cat("must be larger: max_len ", longest_, " makes ", blocks_,
                      " blocks, and more than ", kMostBlocks, " have no lists"));
  }
  const std::int64_t least = options.get_int("min_length");
  if (causal_) {
    exact_ = options.get_string("causal_mode") == "dense";
  } else if (longest_ < least) {
    exact_ = true;
    why_exact_ = cat("exact attention: max_len ", longest_, " is below min_length ", least);
  } else if (blocks_ < 5 + random_) {
    exact_ = true;
    why_exact_ =
        cat("exact attention: ", blocks_, " blocks are fewer than 5 and ", random_, " random ones");
  }
}

std::int64_t BigBirdPattern::Choice::count_below(std::int64_t block) const {
  const std::int64_t all = std::min(block, last + 1) - first;
  const auto excluded = std::lower_bound(without.begin(), without.end(), block) - without.begin();
  return std::max<std::int64_t>(all - excluded, 0);
}

std::int64_t BigBirdPattern::Choice::count() const {
  return count_below(last + 1);
}

BigBirdPattern::Choice BigBirdPattern::choice_of(std::int64_t row) const {
  Choice out;
  if (causal_) {
    out.last = std::min(row - window_, range_ - 1);
    return out;
  }
  const std::int64_t end = blocks_ - 1;
  if (row == 0 || row == end) return out;
  out.last = std::min(end - 1, range_ - 1);
  std::vector<std::int64_t> seen = {row - 1, row, row + 1};
  // The row beside a global one has the window of the row behind it.
  if (row == 1) seen.push_back(end - 1);
  if (row == end - 1) seen.insert(seen.begin(), 1);
  for (const std::int64_t block : seen) {
    if (block >= out.first && block <= out.last) out.without.push_back(block);
  }
  return out;
}

void BigBirdPattern::draw(const Tensor& into, std::uint64_t seed, std::string_view name) const {
  const NamedStream stream(seed, name);
  auto* to = into.data<std::int32_t>();
  for (std::int64_t head = 0; head < into.size(0); ++head) {
    for (std::int64_t row = 0; row < blocks_; ++row) {
      const Choice choice = choice_of(row);
      const std::int64_t available = choice.count();
      std::vector<std::int64_t> taken = choice.without;
      for (std::int64_t e = 0; e < random_; ++e, ++to) {
        *to = -1;
        if (e >= available) continue;
        const auto place =
            static_cast<std::uint64_t>((((head << kRowBits) | row) << kDrawBits) | e);
        // The rank among what is left, then the block of that rank.
        std::int64_t block = choice.first + static_cast<std::int64_t>(stream.below(
                                                place, static_cast<std::uint64_t>(available - e)));
        auto next = taken.begin();
        for (; next != taken.end() && block >= *next; ++next)
          ++block;
        taken.insert(next, block);
        *to = static_cast<std::int32_t>(block);
      }
    }
  }
}

std::vector<PlanRule> BigBirdPattern::rules(const PlanShape& shape, const Tensor& lists) const {
  TileRule rule;
  const auto block = static_cast<std::int32_t>(block_);
  rule.block = block;
  rule.first_keys = block;
  if (causal_) {
    rule.block_left = static_cast<std::int32_t>(window_) - 1;
  } else {
    rule.block_left = rule.block_right = 1;
    rule.first_queries = block;
    rule.last_keys = rule.last_queries = static_cast<std::int32_t>((blocks_ - 1) * block_);
  }
  if (random_ == 0) return {{.rule = rule}};
  const std::int64_t rows = (shape.keys + block_ - 1) / block_;
  std::vector<PlanRule> out;
  for (std::int64_t head = 0; head < lists.size(0); ++head)
    out.push_back({.rule = rule, .list = lists.slice(0, head, head + 1).slice(1, 0, rows)});
  return out;
}

double BigBirdPattern::row_pairs(std::int64_t row, std::int64_t p, std::int64_t keys) const {
  const std::int64_t end = causal_ ? p + 1 : keys, global = blocks_ - 1;
  if (!causal_ && (row == 0 || row == global)) return static_cast<double>(keys);
  const auto size = [&](std::int64_t block) {
    return std::clamp<std::int64_t>(end - block * block_, 0, block_);
  };
  std::set<std::int64_t> seen = {0};
  const std::int64_t from = causal_ ? row - window_ + 1 : row - 1, to = causal_ ? row : row + 1;
  for (std::int64_t block = std::max<std::int64_t>(from, 0); block <= to; ++block)
    seen.insert(block);
  if (!causal_) seen.insert(global);
  double sum = 0;
  for (const std::int64_t block : seen)
    sum += static_cast<double>(size(block));
  const Choice choice = choice_of(row);
  const auto available = static_cast<double>(choice.count());
  if (available == 0) return sum;
  // Every block that may be chosen is whole, but for one that these tokens end in.
  const std::int64_t whole = end / block_;
  const double held = static_cast<double>(
      choice.count_below(whole) * block_ +
      (choice.count_below(whole + 1) - choice.count_below(whole)) * size(whole));
  return sum + std::min(static_cast<double>(random_), available) * held / available;
}

double BigBirdPattern::pairs(std::int64_t queries, std::int64_t keys) const {
  double sum = 0;
  for (std::int64_t p = std::max<std::int64_t>(keys - queries, 0); p < keys; ++p)
    sum += row_pairs(p / block_, p, keys);
  return sum;
}

}  // namespace fovea::attention
