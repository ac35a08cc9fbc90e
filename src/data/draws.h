#pragma once
// The random numbers of one generated example, handed out one after the other.

#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"

namespace fovea::data {

class Draws {
 public:
  // Every example owns 2^bits draws of the stream.
  Draws(std::uint64_t seed, std::string_view stream, std::int64_t example, int bits)
      : stream_(seed, stream), next_(static_cast<std::uint64_t>(example) << bits) {}

  std::uint64_t below(std::uint64_t n) { return stream_.below(next_++, n); }
  double uniform() { return stream_.uniform(next_++); }
  std::int32_t id_in(int begin, int end) {
    return static_cast<std::int32_t>(begin) +
           static_cast<std::int32_t>(below(static_cast<std::uint64_t>(end - begin)));
  }
  // `count` distinct ids of [begin, end), in random order: the head of a Fisher-Yates shuffle.
  std::vector<std::int32_t> distinct(int begin, int end, int count) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(end - begin));
    std::iota(ids.begin(), ids.end(), begin);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::swap(ids[i], ids[i + below(ids.size() - i)]);
    ids.resize(static_cast<std::size_t>(count));
    return ids;
  }

 private:
  NamedStream stream_;
  std::uint64_t next_;
};

}  // namespace fovea::data
