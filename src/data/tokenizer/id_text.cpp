#include "data/tokenizer/id_text.h"

#include <charconv>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

bool IdWriter::add(std::string_view text) {
  counts_.bytes += static_cast<std::int64_t>(text.size());
  for (std::size_t lf = 0; format_.lines && (lf = text.find('\n')) != text.npos;) {
    if (!encode(text.substr(0, lf), false) || !end_text()) return false;
    text.remove_prefix(lf + 1);
  }
  open_ = open_ || !text.empty();
  return encode(text, false);
}

bool IdWriter::end_file() {
  return format_.lines && !open_ ? true : end_text();
}

bool IdWriter::end_text() {
  if (!encode({}, true)) return false;
  ++counts_.texts;
  begins_ = true;
  open_ = false;
  return take_("\n");
}

bool IdWriter::encode(std::string_view text, bool ends) {
  try {
    encoder_.add(text, ids_);
    if (ends) encoder_.finish(ids_);
  } catch (const IoError& e) {  // a tokenizer does not know which text it is about
    throw IoError(cat(name_, ": ", e.what()));
  }
  counts_.tokens += static_cast<std::int64_t>(ids_.size());
  std::string line;
  for (const std::int32_t id : ids_) {
    if (!begins_) line += ' ';
    begins_ = false;
    line += format_.pieces ? quote(tokenizer_.piece(id), std::string::npos) : cat(id);
  }
  ids_.clear();
  return take_(line);
}

void IdReader::begin_file(const std::string& name) {
  name_ = name;
  line_ = 1;
}

bool IdReader::add(std::string_view ids) {
  // No number is longer; what is no number need not be kept whole.
  constexpr std::size_t kLongestWord = 64;
  for (const char c : ids) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      open_ = true;
      if (word_.size() < kLongestWord) word_ += c;
      continue;
    }
    end_word();
    if (c == '\n' && !end_line()) return false;
  }
  return put();
}

bool IdReader::end_file() {
  end_word();
  return !open_ || end_line();
}

void IdReader::end_word() {
  if (word_.empty()) return;
  std::int64_t id = 0;
  const char* const end = word_.data() + word_.size();
  const auto [at, error] = std::from_chars(word_.data(), end, id);
  if (at != end || error == std::errc::invalid_argument)
    throw IoError(cat(name_, ":", line_, ": ", quote(word_), " is no token id"));
  if (error != std::errc() || id < 0 || id >= tokenizer_.vocab_size()) {
    throw IoError(cat(name_, ":", line_, ": token id ", word_, " is outside the ",
                      tokenizer_.kind(), " vocabulary [0, ", tokenizer_.vocab_size(), ")"));
  }
  ids_.push_back(static_cast<std::int32_t>(id));
  word_.clear();
}

bool IdReader::end_line() {
  if (!put()) return false;
  ++counts_.texts;
  ++line_;
  decoder_.restart();
  open_ = false;
  const bool line_end = lines_ && last_ != '\n';
  last_ = '\0';
  return !line_end || write("\n");
}

bool IdReader::put() {
  counts_.tokens += static_cast<std::int64_t>(ids_.size());
  const std::string text = decoder_.add(ids_);
  ids_.clear();
  if (!text.empty()) last_ = text.back();
  return write(text);
}

bool IdReader::write(std::string_view text) {
  counts_.bytes += static_cast<std::int64_t>(text.size());
  return take_(text);
}

}  // namespace fovea::data
