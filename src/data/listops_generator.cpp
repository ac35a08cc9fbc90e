#include "data/listops_generator.h"

#include <array>
#include <span>
#include <unordered_set>

#include "core/error.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::data::listops {

namespace {

constexpr int kMostArgs = 64, kMostDepth = 64;
constexpr std::uint64_t kBlock = std::uint64_t{1} << 16, kChunk = std::uint64_t{1} << 11;
// The published settings accept one tree in twelve.
constexpr std::uint64_t kHopeless = 5000;

// The random words of one tree, one after the other: element `next` of step `tree`.
class Words {
 public:
  Words(std::uint64_t key, std::uint64_t tree) : key_(key), tree_(tree) {}
  std::uint32_t next() {
    if (used_ == 4) {
      four_ = philox4x32(key_, block_++, tree_);
      used_ = 0;
    }
    return four_.v[used_++];
  }
  // In [0, n), unbiased to n / 2^32.
  std::uint32_t below(int n) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * static_cast<std::uint64_t>(n)) >>
                                      32);
  }

 private:
  std::uint64_t key_, tree_, block_ = 0;
  Philox4 four_{};
  int used_ = 4;
};

class Grower {
 public:
  Grower(const ListOpsConfig& config, Words words, Expression& into)
      : config_(config),
        most_(static_cast<std::size_t>(config.max_length)),
        words_(words),
        into_(into) {}

  // The value of the tree that grows from here, or -1 as soon as it is too long.
  int tree(int depth) {
    if (into_.size() + 1 >= most_) return -1;
    if (depth >= config_.max_depth || words_.next() >= std::uint32_t{1} << 30) {
      const std::uint32_t digit = words_.below(10);
      into_.push_back(static_cast<std::uint8_t>(kDigit + digit));
      return static_cast<int>(digit);
    }
    const std::size_t arity = std::size_t{2} + words_.below(config_.max_args - 1);
    const std::size_t head = into_.size();
    into_.push_back(0);  // the operator is drawn behind its arguments
    std::array<std::uint8_t, kMostArgs> values{};
    for (std::size_t i = 0; i < arity; ++i) {
      const int value = tree(depth + 1);
      if (value < 0) return -1;
      values.at(i) = static_cast<std::uint8_t>(value);
    }
    into_[head] = static_cast<std::uint8_t>(kMin + words_.below(4));
    into_.push_back(kClose);
    return apply(into_[head], std::span<const std::uint8_t>(values).first(arity));
  }

 private:
  const ListOpsConfig& config_;
  std::size_t most_;
  Words words_;
  Expression& into_;
};

void check(const ListOpsConfig& c) {
  const auto refuse = [](const auto&... text) { throw ConfigError(cat("data.listops.", text...)); };
  if (c.max_depth < 1 || c.max_depth > kMostDepth)
    refuse("max_depth is ", c.max_depth, ", but must be in [1, ", kMostDepth, "]");
  if (c.max_args < 2 || c.max_args > kMostArgs)
    refuse("max_args is ", c.max_args, ", but must be in [2, ", kMostArgs, "]");
  if (c.min_length < 0 || c.max_length < c.min_length + 2) {
    refuse("min_length and max_length are ", c.min_length, " and ", c.max_length,
           ", but some length must lie between them, neither included");
  }
}

}  // namespace

Generator::Generator(const ListOpsConfig& config, std::uint64_t seed)
    : config_(config), seed_(seed) {
  check(config);
}

int Generator::draw(std::uint64_t number, Expression& into) const {
  into.clear();
  const int value =
      Grower(config_, Words(mix64(seed_, hash_name("listops.tree")), number), into).tree(1);
  const auto length = static_cast<std::int64_t>(into.size());
  return value >= 0 && length > config_.min_length && length < config_.max_length ? value : -1;
}

std::vector<std::uint64_t> Generator::first(std::int64_t count, int threads) const {
  struct Found {
    std::uint64_t number, hash;
  };
  const auto wanted = static_cast<std::size_t>(count);
  ThreadPool pool(threads);
  std::vector<std::vector<Found>> chunks(kBlock / kChunk);
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::uint64_t> out;
  // The block grows, so that few trees are drawn for few examples.
  for (std::uint64_t begin = 0, size = kChunk; out.size() < wanted;
       begin += size, size = size < kBlock ? 2 * size : kBlock) {
    if (begin > kHopeless * (wanted + 1000)) {
      throw ConfigError(cat("data.listops: of ", begin, " trees only ", out.size(),
                            " differ and have more than ", config_.min_length, " and fewer than ",
                            config_.max_length, " tokens, but ", count,
                            " are wanted: widen min_length and max_length, raise max_depth, or ask "
                            "for fewer examples"));
    }
    parallel_for(StreamRef{&pool}, static_cast<std::int64_t>(size / kChunk), 1,
                 [&](std::int64_t chunk, std::int64_t) {
                   std::vector<Found>& found = chunks[static_cast<std::size_t>(chunk)];
                   found.clear();
                   Expression tree;
                   const std::uint64_t from = begin + static_cast<std::uint64_t>(chunk) * kChunk;
                   for (std::uint64_t number = from; number < from + kChunk; ++number) {
                     if (draw(number, tree) < 0) continue;
                     found.push_back({number, xxh3_64(tree.data(), tree.size())});
                   }
                 });
    // In the order of the numbers: which of two equal trees counts must not vary.
    for (std::size_t chunk = 0; chunk < size / kChunk; ++chunk) {
      for (const Found& tree : chunks[chunk]) {
        if (out.size() < wanted && seen.insert(tree.hash).second) out.push_back(tree.number);
      }
    }
  }
  return out;
}

}  // namespace fovea::data::listops
