#pragma once
// How much text there is, in every unit that a metric may be divided by (data.md 3.1).

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::data {

struct TextCounts {
  std::int64_t documents = 0;
  std::int64_t bytes = 0;          // clean bytes (text_reader.h)
  std::int64_t characters = 0;     // code points; a byte that is not UTF-8 counts as one
  std::int64_t words = 0;          // runs of anything but ASCII white space
  std::int64_t lines = 0;          // LF, and a last line of a document without one
  std::int64_t invalid_bytes = 0;  // not UTF-8; kept as they are
  friend bool operator==(const TextCounts&, const TextCounts&) = default;
};
TextCounts& operator+=(TextCounts& to, const TextCounts& more);

// Counts documents that come in pieces: the pieces' borders do not matter.
class TextCounter {
 public:
  void add(std::string_view text);
  void end_document();
  const TextCounts& counts() const { return counts_; }

 private:
  std::size_t count_characters(std::string_view text, std::size_t until);

  TextCounts counts_;
  std::string cut_off_;  // the beginning of a character, at most 3 bytes
  bool in_word_ = false, in_line_ = false;
};

}  // namespace fovea::data
