#include "data/listops.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/listops_files.h"
#include "data/listops_generator.h"

namespace fovea::data {

namespace {

using listops::Expression;

// What knowing nothing but the operator of the outermost list gets right most often: the median's
// likeliest value is 4, and of a sum modulo 10 no value is likelier than others.
int guess_of(std::uint8_t first) {
  if (first == listops::kMin) return 0;
  if (first == listops::kMax) return 9;
  if (first == listops::kMed) return 4;
  return first >= listops::kDigit ? first - listops::kDigit : 0;
}

class ListOpsSource : public Source {
 public:
  explicit ListOpsSource(int seq_len) : seq_len_(seq_len) {}

  int seq_len() const override { return seq_len_; }
  int classes() const override { return listops::kLabels; }
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return 1; }

  void get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const override {
    FOVEA_ASSERT(i >= 0 && i < size());
    Expression tree;
    const int value = expression(i, tree);
    const std::size_t kept = std::min(tree.size(), static_cast<std::size_t>(seq_len_));
    example.tokens.assign(tree.begin(), tree.begin() + static_cast<std::ptrdiff_t>(kept));
    example.targets.assign(1, value);
  }

  // The two lines that every report of ListOps has to be read against (data.md 5.2).
  std::vector<Guess> guesses(std::int64_t examples) const override {
    Guess zero{"always_0"}, operator_only{"first_token"};
    Expression tree;
    for (std::int64_t i = 0; i < std::min(examples, size()); ++i) {
      const int value = expression(i, tree);
      zero.correct += value == 0 ? 1 : 0;
      operator_only.correct += value == guess_of(tree.front()) ? 1 : 0;
    }
    return {zero, operator_only};
  }

 protected:
  // Example i whole; returns its value.
  virtual int expression(std::int64_t i, Expression& into) const = 0;

 private:
  int seq_len_;
};

class GeneratedListOps final : public ListOpsSource {
 public:
  GeneratedListOps(const ListOpsConfig& config, int seq_len, Split split, std::uint64_t seed)
      : ListOpsSource(seq_len), generator_(config, seed) {
    const std::int64_t sizes[] = {config.train_examples, config.validation_examples,
                                  config.test_examples};
    std::int64_t before = 0;
    for (int i = 0; i < static_cast<int>(split); ++i)
      before += sizes[i];
    const std::int64_t count = sizes[static_cast<int>(split)];
    if (count < 1)
      throw ConfigError(
          cat("data.listops has ", count, " ", name_of(split), " examples, but needs 1"));
    const unsigned cores = std::thread::hardware_concurrency();
    trees_ = generator_.first(before + count, static_cast<int>(std::clamp(cores, 1u, 16u)));
    trees_.erase(trees_.begin(), trees_.begin() + static_cast<std::ptrdiff_t>(before));
    summary_ = cat("listops: ", count, " generated ", name_of(split), " examples of ",
                   config.min_length + 1, " to ", config.max_length - 1, " tokens, depth ",
                   config.max_depth, ", ", config.max_args, " arguments",
                   config.max_length > seq_len + 1 ? cat(", cut at ", seq_len) : std::string());
    fingerprint_ = hash_hex(xxh3_64(cat(summary_, ", seed ", seed)));
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(trees_.size()); }
  std::string summary() const override { return summary_; }
  std::string fingerprint() const override { return fingerprint_; }

 protected:
  int expression(std::int64_t i, Expression& into) const override {
    return generator_.draw(trees_[static_cast<std::size_t>(i)], into);
  }

 private:
  listops::Generator generator_;
  std::vector<std::uint64_t> trees_;
  std::string summary_, fingerprint_;
};

class ReadListOps final : public ListOpsSource {
 public:
  ReadListOps(const DataConfig& config, int seq_len, Split split) : ListOpsSource(seq_len) {
    const listops::Place place = listops::find_split(config.path, split);
    table_ = listops::read_table(place.file);
    last_ = table_.size();
    if (place.by_fraction) {
      const auto held_out =
          static_cast<std::int64_t>(static_cast<double>(table_.size()) * config.val_fraction);
      (split == Split::train ? last_ : first_) = table_.size() - std::min(held_out, table_.size());
      if (first_ == last_) {
        throw IoError(cat(place.file, ": its ", table_.size(), " examples leave the ",
                          name_of(split), " split none (data.val_fraction ", config.val_fraction,
                          ")"));
      }
    }
    std::int64_t cut = 0, longest = 0;
    Xxh3 hash;
    Expression tree;
    for (std::int64_t i = 0; i < size(); ++i) {
      const int value = expression(i, tree);
      const auto length = static_cast<std::int64_t>(tree.size());
      cut += length > seq_len ? 1 : 0;
      longest = std::max(longest, length);
      hash.update(tree.data(), std::min(tree.size(), static_cast<std::size_t>(seq_len)));
      const auto end = static_cast<std::uint8_t>(0x80 + value);
      hash.update(&end, 1);
    }
    fingerprint_ = hash.hex();
    summary_ = cat("listops: ", size(), " ", name_of(split), " examples of ", place.file,
                   ", at most ", longest, " tokens",
                   cut > 0 ? cat(", of which ", cut, " are cut at ", seq_len) : std::string());
  }

  std::int64_t size() const override { return last_ - first_; }
  std::string summary() const override { return summary_; }
  std::string fingerprint() const override { return fingerprint_; }

 protected:
  int expression(std::int64_t i, Expression& into) const override {
    const auto at = static_cast<std::size_t>(first_ + i);
    const std::uint64_t begin = at == 0 ? 0 : table_.ends[at - 1];
    into.assign(table_.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                table_.tokens.begin() + static_cast<std::ptrdiff_t>(table_.ends[at]));
    return table_.values[at];
  }

 private:
  listops::Table table_;
  std::int64_t first_ = 0, last_ = 0;
  std::string summary_, fingerprint_;
};

}  // namespace

std::unique_ptr<Source> make_listops(const DataConfig& config, int seq_len, Split split,
                                     std::uint64_t seed) {
  if (!config.path.empty()) return std::make_unique<ReadListOps>(config, seq_len, split);
  return std::make_unique<GeneratedListOps>(config.listops, seq_len, split, seed);
}

}  // namespace fovea::data
