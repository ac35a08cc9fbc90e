#pragma once
// Tokens that are found in a text before anything splits it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::data {

class SpecialTokens {
 public:
  // `text` is not empty.
  void add(std::string_view text, std::int32_t id);

  struct Found {
    std::size_t at, bytes;  // `at` is the text's size if nothing was found
    std::int32_t id;
  };
  // The first token at or behind `from`, the longest of those that begin there.
  Found find(std::string_view text, std::size_t from) const;

  bool empty() const { return longest_ == 0; }
  std::size_t longest() const { return longest_; }  // bytes; 0 without tokens

 private:
  struct Token {
    std::string text;
    std::int32_t id;
  };
  std::array<std::vector<Token>, 256> by_first_byte_;  // each longest first
  std::size_t longest_ = 0;
};

}  // namespace fovea::data
