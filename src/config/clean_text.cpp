#include "config/clean_text.h"

#include <cstddef>

namespace fovea::config {

namespace {

// Bytes of the character that starts at p, or 0 if it is not UTF-8 (RFC 3629: shortest form, no
// surrogates).
std::size_t utf8_length(std::string_view text, std::size_t p) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(p), second = byte(p + 1);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2   ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(p + i) & 0xC0) != 0x80) return 0;
  }
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

}  // namespace

CleanText clean_text(std::string_view bytes) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t p = 0; p < bytes.size();) {
    const std::size_t length = utf8_length(bytes, p);
    const auto byte = static_cast<unsigned char>(bytes[p]);
    if (length == 0) return {out, "not UTF-8 text"};
    if (byte == '\r') {
      out.push_back('\n');
      p += p + 1 < bytes.size() && bytes[p + 1] == '\n' ? 2 : 1;
      continue;
    }
    if ((byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F) {
      return {out, "a control character; write it as an escape in double quotes"};
    }
    if (bytes.substr(p, length) == kByteOrderMark)
      return {out, "a byte order mark inside the text"};
    out.append(bytes.substr(p, length));
    p += length;
  }
  return {out, ""};
}

bool is_utf8(std::string_view bytes) {
  std::size_t p = 0;
  while (p < bytes.size()) {
    const std::size_t length = utf8_length(bytes, p);
    if (length == 0) return false;
    p += length;
  }
  return true;
}

}  // namespace fovea::config
