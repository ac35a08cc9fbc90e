#include "core/random.h"

#include <cmath>

#include "core/error.h"

namespace fovea {

std::uint64_t NamedStream::bits64(std::uint64_t index) const {
  const Philox4 four = philox4x32(mix64(key_.seed, key_.path_hash), index, ~std::uint64_t{0});
  return (static_cast<std::uint64_t>(four.v[0]) << 32) | four.v[1];
}

double NamedStream::uniform(std::uint64_t index) const {
  return (static_cast<double>(bits64(index) >> 12) + 0.5) * 0x1p-52;
}

double NamedStream::normal(std::uint64_t index) const {
  const Philox4 four = philox4x32(mix64(key_.seed, key_.path_hash), index, ~std::uint64_t{1});
  const double u =
      (static_cast<double>(((static_cast<std::uint64_t>(four.v[0]) << 32) | four.v[1]) >> 12) +
       0.5) *
      0x1p-52;
  const double v =
      (static_cast<double>(((static_cast<std::uint64_t>(four.v[2]) << 32) | four.v[3]) >> 12) +
       0.5) *
      0x1p-52;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
}

std::uint64_t NamedStream::below(std::uint64_t index, std::uint64_t n) const {
  FOVEA_ASSERT(n > 0);
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits64(index)) * n) >> 64);
}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::string_view name)
    : n_(n), key_(mix64(seed, hash_name(name))), mask_(0), half_bits_(1) {
  FOVEA_ASSERT(n > 0 && n < (std::uint64_t{1} << 62));
  while ((std::uint64_t{1} << (2 * half_bits_)) < n)
    ++half_bits_;
  mask_ = (std::uint64_t{1} << half_bits_) - 1;
}

std::uint64_t Permutation::at(std::uint64_t i) const {
  FOVEA_ASSERT(i < n_);
  do {
    std::uint64_t left = i >> half_bits_, right = i & mask_;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (mix64(key_ + round, right) & mask_);
      left = right;
      right = mixed;
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);  // cycle walking: a permutation of the larger set restricted to ours
  return i;
}

}  // namespace fovea
