#pragma once
// GPT-2's printable stand-ins for bytes: files spell a token's bytes with them (space is "Ġ").

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fovea::data {

// Bytes 33-126, 161-172 and 174-255 stand for themselves as code points, the other 68 in ascending
// order for U+0100 and on. Source: data.md 2.3.
class ByteSymbols {
 public:
  ByteSymbols();
  // The bytes a token's spelling stands for; nothing if a character of it is no symbol.
  std::optional<std::string> bytes_of(std::string_view spelling) const;
  std::string symbol_of(std::uint8_t byte) const;
  // Byte i of the vocabulary's order: the 188 that stand for themselves, then the 68 others.
  std::uint8_t byte_in_order(int i) const { return order_[static_cast<std::size_t>(i)]; }

 private:
  std::array<std::uint8_t, 256> order_;
  std::array<std::int16_t, 0x144> byte_of_;  // by code point; -1: no symbol
  std::array<std::uint16_t, 256> code_point_of_;
};

}  // namespace fovea::data
