#include "data/tokenizer/char_tokenizer.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"
#include "data/tokenizer/unicode_classes.h"

namespace fovea::data {

namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;

// How many bytes at the end may be the beginning of a character that goes on.
std::size_t cut_off_bytes(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= 3 && bytes <= text.size(); ++bytes) {
    const auto lead = static_cast<unsigned char>(text[text.size() - bytes]);
    if (lead >= 0xC0) {
      const std::size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
      return bytes < whole ? bytes : 0;
    }
    if (lead < 0x80) return 0;
  }
  return 0;
}

std::string name_of(std::uint32_t code_point) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string name = "U+";
  for (int shift = code_point > 0xFFFF ? 20 : 12; shift >= 0; shift -= 4)
    name.push_back(kDigits[code_point >> shift & 15]);
  return name;
}

}  // namespace

void CharCounter::add(std::string_view text) {
  std::string joined;
  if (!cut_off_.empty()) {
    joined = cat(cut_off_, text);
    text = joined;
  }
  const std::size_t end = text.size() - cut_off_bytes(text);
  for (std::size_t at = 0; at < end;) {
    const Character c = character_at(text, at);
    at += c.bytes;
    if (c.code_point < ascii_.size()) {
      ascii_[c.code_point] = true;
    } else {
      seen_.insert(c.code_point == kInvalid ? kReplacement : c.code_point);
    }
  }
  cut_off_ = text.substr(end);
}

std::vector<std::uint32_t> CharCounter::finish() {
  if (!cut_off_.empty()) seen_.insert(kReplacement);
  cut_off_.clear();
  std::vector<std::uint32_t> code_points;
  for (std::uint32_t c = 0; c < ascii_.size(); ++c)
    if (ascii_[c]) code_points.push_back(c);
  code_points.insert(code_points.end(), seen_.begin(), seen_.end());
  return code_points;
}

CharTokenizer::CharTokenizer(const std::string& path, std::vector<std::uint32_t> code_points)
    : path_(path), code_points_(std::move(code_points)) {
  if (code_points_.empty()) throw IoError(cat(path, ": has no characters to make a vocabulary of"));
  for (std::uint32_t c = 0; c < ascii_.size(); ++c)
    ascii_[c] = find(c);
  unknown_ = find(kReplacement);
}

CharTokenizer CharTokenizer::read(const std::string& path, std::string_view text) {
  std::vector<std::uint32_t> code_points;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 && line == kHeader) continue;
    std::uint32_t code_point = 0;
    const char* const stop = line.data() + line.size();
    const auto [at, error] = line.size() > 2
                                 ? std::from_chars(line.data() + 2, stop, code_point, 16)
                                 : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (!line.starts_with("U+") || error != std::errc() || at != stop || code_point > 0x10FFFF ||
        (code_point >= 0xD800 && code_point < 0xE000)) {
      throw IoError(
          cat(path, ": line ", number, ": ", quote(line, 40), " is no code point like U+000A"));
    }
    if (!code_points.empty() && code_point <= code_points.back()) {
      throw IoError(cat(path, ": line ", number, ": code points must ascend, but ", quote(line),
                        " does not"));
    }
    code_points.push_back(code_point);
  }
  return CharTokenizer(path, std::move(code_points));
}

std::int32_t CharTokenizer::find(std::uint32_t code_point) const {
  const auto found = std::lower_bound(code_points_.begin(), code_points_.end(), code_point);
  return found == code_points_.end() || *found != code_point
             ? -1
             : static_cast<std::int32_t>(found - code_points_.begin());
}

std::string CharTokenizer::fingerprint() const {
  Xxh3 hash;
  hash.update(kind());
  hash.update(code_points_.data(), code_points_.size() * sizeof code_points_[0]);
  return hash.hex();
}

void CharTokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    std::int32_t id = c.code_point < ascii_.size() ? ascii_[c.code_point] : find(c.code_point);
    if (id < 0) id = unknown_;
    if (id < 0) {
      throw NotInVocabulary(
          cat(path_, ": the character vocabulary lacks ",
              c.code_point == kInvalid ? "bytes that are not UTF-8 and U+FFFD"
                                       : name_of(c.code_point),
              ", which is in "),
          at, "; make it of all splits, or add U+FFFD to stand for unknown characters");
    }
    ids.push_back(id);
    at += c.bytes;
  }
}

std::string CharTokenizer::piece(std::int32_t id) const {
  check_id(id);
  std::string text;
  append_utf8(text, code_points_[static_cast<std::size_t>(id)]);
  return text;
}

std::size_t CharTokenizer::safe_cut(std::string_view text, std::size_t from) const {
  const std::size_t cut = text.size() - cut_off_bytes(text);
  return cut >= from ? cut : 0;
}

std::vector<TokenizerFile> CharTokenizer::files() const {
  std::string text = cat(kHeader, "\n");
  for (const std::uint32_t code_point : code_points_)
    text += cat(name_of(code_point), "\n");
  return {{"vocab.txt", std::move(text)}};
}

}  // namespace fovea::data
