#include "data/text_counts.h"

#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Whether the text's last bytes, no character by themselves, are the beginning of one.
bool may_go_on(std::string_view end) {
  const auto lead = static_cast<unsigned char>(end[0]);
  if (end.size() == 1) return lead >= 0xC2 && lead <= 0xF4;
  return end.size() < 4 && utf8_length(cat(end, "\x80\x80"), 0) > static_cast<int>(end.size());
}

}  // namespace

TextCounts& operator+=(TextCounts& to, const TextCounts& more) {
  to.documents += more.documents;
  to.bytes += more.bytes;
  to.characters += more.characters;
  to.words += more.words;
  to.lines += more.lines;
  to.invalid_bytes += more.invalid_bytes;
  return to;
}

// Counts the characters that begin in text[0, until). Returns where it stopped: there, or where
// more bytes must come.
std::size_t TextCounter::count_characters(std::string_view text, std::size_t until) {
  std::size_t at = 0;
  while (at < until) {
    ++counts_.characters;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const int bytes = utf8_length(text, at);
    if (bytes == 0 && may_go_on(text.substr(at))) {
      --counts_.characters;
      return at;
    }
    if (bytes == 0) ++counts_.invalid_bytes;
    at += bytes == 0 ? 1 : static_cast<std::size_t>(bytes);
  }
  return at;
}

void TextCounter::add(std::string_view text) {
  counts_.bytes += static_cast<std::int64_t>(text.size());
  for (const char c : text) {
    const bool in_word = !is_space(c);
    counts_.words += in_word && !in_word_;
    in_word_ = in_word;
    counts_.lines += c == '\n';
  }
  if (!text.empty()) in_line_ = text.back() != '\n';
  std::size_t at = 0;
  if (!cut_off_.empty() && !text.empty()) {
    const std::size_t held = cut_off_.size();
    cut_off_ += text.substr(0, 3);
    const std::size_t stopped = count_characters(cut_off_, held);
    cut_off_.erase(0, stopped);
    if (stopped < held) return;  // all of the text is in cut_off_
    at = stopped - held;
    cut_off_.clear();
  }
  text.remove_prefix(at);
  cut_off_ = text.substr(count_characters(text, text.size()));
}

void TextCounter::end_document() {
  counts_.characters += static_cast<std::int64_t>(cut_off_.size());
  counts_.invalid_bytes += static_cast<std::int64_t>(cut_off_.size());
  counts_.lines += in_line_;
  ++counts_.documents;
  cut_off_.clear();
  in_word_ = in_line_ = false;
}

}  // namespace fovea::data
