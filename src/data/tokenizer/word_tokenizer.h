#pragma once
// Words between spaces, WikiText's convention: a line is its words and "<eos>".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/pieces.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// The words of a text that comes in pieces, and how often each is there.
class WordCounter {
 public:
  void add(std::string_view text);
  // "<eos>", then the types by descending frequency, the one that came first before its equals;
  // then
  // "<unk>" if the text has none, so that words of other texts have an id. The text is over.
  Pieces finish();

 private:
  void count(std::string_view word);

  std::string open_;  // the word that may go on
  Pieces words_;
  std::vector<std::int64_t> counts_;
};

// Ids are lines of the vocabulary. Lines end at LF, words at the ASCII space; empty words do not
// count. Every line ends with <eos>, blank ones and an unfinished last one too. A word that the
// vocabulary lacks is <unk>. Source: data.md 2.1.
class WordTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kEndOfLine = "<eos>", kUnknown = "<unk>";

  // words[0] is <eos>; <unk> is among the others. `path` is for messages.
  WordTokenizer(const std::string& path, Pieces words);
  // A word a line, the first one <eos>. Throws IoError.
  static WordTokenizer read(const std::string& path, std::string_view text);

  std::string_view kind() const override { return "word"; }
  std::int32_t vocab_size() const override { return words_.size(); }
  std::string fingerprint() const override;
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const override;
  // As WikiText's files are: a space before and after the words of a line, one space in a blank
  // one.
  std::string decode(std::span<const std::int32_t> ids) const override;
  // A word without spaces; "\n" for <eos>.
  std::string piece(std::int32_t id) const override;
  std::size_t safe_cut(std::string_view text, std::size_t from) const override;
  std::optional<std::int32_t> end_of_text() const override { return 0; }
  std::vector<TokenizerFile> files() const override;

  std::int32_t unknown() const { return unknown_; }

 private:
  Pieces words_;
  std::int32_t unknown_;
};

}  // namespace fovea::data
