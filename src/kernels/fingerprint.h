#pragma once
// One number for the bits of a buffer, to compare what ranks hold: equal bits have equal numbers,
// other bits other ones but for 2^-64. No defence against intent.

#include "core/philox.h"
#include "kernels/dispatch.h"

namespace fovea {

// Of a 32-bit word at a place. The sum over all words modulo 2^64 is the fingerprint, so the order
// of additions does not show.
FOVEA_HOST_DEVICE constexpr std::uint64_t fingerprint_of(std::uint64_t place, std::uint32_t word) {
  std::uint64_t h = (place + 1) * 0x9E3779B97F4A7C15u ^ word;  // finalised as in MurmurHash3
  h ^= h >> 33;
  h *= 0xFF51AFD7ED558CCDu;
  h ^= h >> 33;
  h *= 0xC4CEB9FE1A85EC53u;
  return h ^ (h >> 33);
}

// out i64 [1], assigned; x contiguous, f32 or f64.
FOVEA_KERNEL(fingerprint, StreamRef, const View& out, const View& x)

}  // namespace fovea
