#pragma once
// Numbered byte strings in one arena, with a hash index from bytes to number.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::data {

// 64 mixed bits of short strings, fast; the same on every machine of one byte order. Not for files.
std::uint64_t piece_hash(std::string_view piece);

class Pieces {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  std::string_view operator[](std::int32_t id) const {
    const auto i = static_cast<std::size_t>(id);
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }

  // Appends a piece and returns its number; find() does not know it yet.
  std::int32_t append(std::string_view piece);
  // Makes find() know the piece of that number. If its bytes are known already, the earlier number
  // stays.
  void index(std::int32_t id);
  // The number of an indexed piece of these bytes, or -1.
  std::int32_t find(std::string_view piece) const;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // the hash's upper half: tells most strangers apart without their bytes
    std::int32_t id = -1;
  };
  std::size_t slot_of(std::string_view piece, std::uint64_t hash) const;
  void grow();

  std::string bytes_;
  std::vector<std::size_t> ends_;
  std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half full
  std::size_t indexed_ = 0;
};

}  // namespace fovea::data
