#include "data/tokenizer/word_tokenizer.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

// Where the word that begins at `from` ends.
std::size_t end_of_word(std::string_view text, std::size_t from) {
  std::size_t at = from;
  while (at < text.size() && text[at] != ' ' && text[at] != '\n')
    ++at;
  return at;
}

}  // namespace

void WordCounter::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    if (end == text.size()) {
      open_ += text.substr(at);
    } else if (!open_.empty()) {
      count(open_ += text.substr(at, end - at));
      open_.clear();
    } else if (end > at) {
      count(text.substr(at, end - at));
    }
    at = end + 1;
  }
}

void WordCounter::count(std::string_view word) {
  std::int32_t id = words_.find(word);
  if (id < 0) {
    id = words_.append(word);
    words_.index(id);
    counts_.push_back(0);
  }
  ++counts_[static_cast<std::size_t>(id)];
}

Pieces WordCounter::finish() {
  if (!open_.empty()) count(open_);
  open_.clear();
  std::vector<std::int32_t> order(counts_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return counts_[static_cast<std::size_t>(a)] > counts_[static_cast<std::size_t>(b)];
  });
  Pieces vocabulary;
  const auto add = [&](std::string_view word) {
    if (vocabulary.find(word) < 0) vocabulary.index(vocabulary.append(word));
  };
  add(WordTokenizer::kEndOfLine);
  for (const std::int32_t word : order)
    add(words_[word]);
  add(WordTokenizer::kUnknown);
  return vocabulary;
}

WordTokenizer::WordTokenizer(const std::string& path, Pieces words)
    : words_(std::move(words)), unknown_(words_.find(kUnknown)) {
  if (words_.find(kEndOfLine) != 0)
    throw IoError(cat(path, ": the first word of a vocabulary must be <eos>"));
  if (unknown_ < 0)
    throw IoError(cat(path, ": the vocabulary has no <unk> for words that it lacks; add it"));
}

WordTokenizer WordTokenizer::read(const std::string& path, std::string_view text) {
  Pieces words;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto fail = [&](std::string_view reason) {
      throw IoError(cat(path, ": line ", number, ": ", quote(line, 40), " ", reason));
    };
    if (line.empty() || line.find(' ') != std::string_view::npos) fail("is not one word");
    if (words.find(line) >= 0) fail(cat("is also in line ", words.find(line) + 1));
    words.index(words.append(line));
  }
  return WordTokenizer(path, std::move(words));
}

std::string WordTokenizer::fingerprint() const {
  Xxh3 hash;
  hash.update(kind());
  for (std::int32_t id = 0; id < words_.size(); ++id) {
    hash.update(words_[id]);
    hash.update("\n");
  }
  return hash.hex();
}

void WordTokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    if (end > at) {
      const std::int32_t id = words_.find(text.substr(at, end - at));
      ids.push_back(id < 0 ? unknown_ : id);
    }
    if (end < text.size() && text[end] == '\n') ids.push_back(0);
    at = end + 1;
  }
  if (!text.empty() && text.back() != '\n') ids.push_back(0);
}

std::string WordTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool line_begins = true;
  for (const std::int32_t id : ids) {
    check_id(id);
    if (line_begins) text += ' ';
    line_begins = id == 0;
    if (id == 0) {
      text += '\n';
    } else {
      text += words_[id];
      text += ' ';
    }
  }
  return text;
}

std::string WordTokenizer::piece(std::int32_t id) const {
  check_id(id);
  return id == 0 ? "\n" : std::string(words_[id]);
}

std::size_t WordTokenizer::safe_cut(std::string_view text, std::size_t from) const {
  const std::size_t end_of_line = text.rfind('\n');
  return end_of_line == std::string_view::npos || end_of_line + 1 < from ? 0 : end_of_line + 1;
}

std::vector<TokenizerFile> WordTokenizer::files() const {
  std::string text;
  for (std::int32_t id = 0; id < words_.size(); ++id) {
    text += words_[id];
    text += '\n';
  }
  return {{"vocab.txt", std::move(text)}};
}

}  // namespace fovea::data
