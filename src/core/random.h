#pragma once
// Host-side draws from named streams: parameter initialisation and fixed random matrices. A pure
// function of (seed, name, index), whatever was drawn before.

#include <cstdint>
#include <string_view>

#include "core/philox.h"

namespace fovea {

// FNV-1a: names of random streams and paths become keys by it.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

class NamedStream {
 public:
  NamedStream(std::uint64_t seed, std::string_view name) : key_{seed, hash_name(name), nullptr} {}
  std::uint32_t bits(std::uint64_t index) const { return random_bits(key_, index); }
  std::uint64_t bits64(std::uint64_t index) const;
  double uniform(std::uint64_t index) const;  // in (0, 1), 52 bits
  double normal(std::uint64_t index) const;   // mean 0, variance 1 (Box-Muller)
  std::uint64_t below(std::uint64_t index,
                      std::uint64_t n) const;  // in [0, n), unbiased to 2^-64 n

 private:
  Key key_;
};

// A permutation of [0, n) that needs no table: a four-round Feistel network over the next power of
// four, walked until it falls inside. Pure in (seed, name): `at(i)` costs a few mixes.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::string_view name);
  std::uint64_t at(std::uint64_t i) const;  // i in [0, n)
  std::uint64_t size() const { return n_; }

 private:
  std::uint64_t n_, key_, mask_;
  int half_bits_;
};

}  // namespace fovea
