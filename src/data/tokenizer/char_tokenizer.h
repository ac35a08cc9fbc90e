#pragma once
// One token a code point: the characters of a training text in ascending order.

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// The code points of a text that comes in pieces. A byte that is not UTF-8 counts as U+FFFD.
class CharCounter {
 public:
  void add(std::string_view text);
  // Ascending. The text is over.
  std::vector<std::uint32_t> finish();

 private:
  std::string cut_off_;  // the beginning of a character, at most 3 bytes
  std::set<std::uint32_t> seen_;
  std::array<bool, 128> ascii_ = {};
};

class CharTokenizer final : public Tokenizer {
 public:
  // `code_points` ascending, each once, at least one. `path` is for messages.
  CharTokenizer(const std::string& path, std::vector<std::uint32_t> code_points);
  // Lines "U+000A" behind the line kHeader. Throws IoError.
  static CharTokenizer read(const std::string& path, std::string_view text);
  static constexpr std::string_view kHeader = "fovea character vocabulary 1";

  std::string_view kind() const override { return "char"; }
  std::int32_t vocab_size() const override {
    return static_cast<std::int32_t>(code_points_.size());
  }
  std::string fingerprint() const override;
  // A character that the vocabulary lacks, and a byte that is not UTF-8, becomes U+FFFD if that is
  // in the vocabulary. Throws IoError otherwise: text that cannot be told apart is not modelled
  // silently.
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string piece(std::int32_t id) const override;
  std::size_t safe_cut(std::string_view text, std::size_t from) const override;
  std::vector<TokenizerFile> files() const override;

 private:
  std::int32_t find(std::uint32_t code_point) const;

  std::string path_;
  std::vector<std::uint32_t> code_points_;
  std::array<std::int32_t, 128> ascii_;
  std::int32_t unknown_;  // -1: none
};

}  // namespace fovea::data
