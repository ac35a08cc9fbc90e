#include "data/quote.h"

namespace fovea::data {

namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

bool follows(unsigned byte, unsigned low = 0x80, unsigned high = 0xBF) {
  return byte >= low && byte <= high;
}

}  // namespace

int utf8_length(std::string_view text, std::size_t at) {
  const unsigned a = byte_at(text, at), b = byte_at(text, at + 1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(b) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    const bool second = follows(b, a == 0xE0 ? 0xA0 : 0x80, a == 0xED ? 0x9F : 0xBF);
    return second && follows(byte_at(text, at + 2)) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    const bool second = follows(b, a == 0xF0 ? 0x90 : 0x80, a == 0xF4 ? 0x8F : 0xBF);
    return second && follows(byte_at(text, at + 2)) && follows(byte_at(text, at + 3)) ? 4 : 0;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const int length = utf8_length(text, at);
    if (length == 0) return false;
    at += static_cast<std::size_t>(length);
  }
  return true;
}

std::string quote(std::string_view text, std::size_t most) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < most) {
    const unsigned byte = byte_at(text, at);
    const int length = utf8_length(text, at);
    // C1 controls (U+0080 to U+009F, in UTF-8 C2 80 to C2 9F) steer terminals too.
    const bool c1 = byte == 0xC2 && byte_at(text, at + 1) < 0xA0;
    if (length == 0 || c1 || byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
      ++at;
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out.append(text, at, static_cast<std::size_t>(length));
      at += static_cast<std::size_t>(length);
    }
  }
  out += at < text.size() ? "...\"" : "\"";
  return out;
}

}  // namespace fovea::data
