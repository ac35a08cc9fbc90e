#include "data/tokenizer/byte_symbols.h"

#include "data/tokenizer/unicode_classes.h"

namespace fovea::data {

namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

}  // namespace

ByteSymbols::ByteSymbols() {
  byte_of_.fill(-1);
  std::size_t itself = 0, other = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool same = stands_for_itself(byte);
    order_[same ? itself++ : 188 + other] = static_cast<std::uint8_t>(byte);
    const std::size_t code_point = same ? static_cast<std::size_t>(byte) : 0x100 + other++;
    byte_of_[code_point] = static_cast<std::int16_t>(byte);
    code_point_of_[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(code_point);
  }
}

std::string ByteSymbols::symbol_of(std::uint8_t byte) const {
  std::string symbol;
  append_utf8(symbol, code_point_of_[byte]);
  return symbol;
}

std::optional<std::string> ByteSymbols::bytes_of(std::string_view spelling) const {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const Character c = character_at(spelling, at);
    if (c.code_point >= byte_of_.size() || byte_of_[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_[c.code_point]));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace fovea::data
