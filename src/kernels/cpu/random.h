#pragma once
// Random bits by the block: the values of random_bits(), many at a time.

#include <cstdint>
#include <cstring>

#include "core/philox.h"
#include "kernels/cpu/simd.h"

namespace fovea::cpu::FOVEA_ISA {

// Counters in 64-bit lanes of which the low 32 bits count: what the widening product reads.
typedef std::uint64_t Longs __attribute__((vector_size(kLanes * 4)));

inline Longs widening_product(Longs a, std::uint32_t b) {
#ifdef FOVEA_ISA_avx512
  return reinterpret_cast<Longs>(_mm512_maskz_mul_epu32(
      0xff, reinterpret_cast<__m512i>(a), _mm512_set1_epi64(static_cast<long long>(b))));
#else
  return reinterpret_cast<Longs>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a),
                                                  _mm256_set1_epi64x(static_cast<long long>(b))));
#endif
}

class RandomBlock {
 public:
  static constexpr std::int64_t kSize = 64;

  explicit RandomBlock(const Key& key) : key_(key) {}
  // Draws the aligned block of kSize elements that holds `element`; returns the element's place in
  // it. Flattened: mix64 must not stay a function of its own, which the linker would share between
  // instruction sets.
  [[gnu::flatten]] std::int64_t fill(std::uint64_t element) {
    constexpr int kGroups = kLanes / 2;  // Philox calls of one vector
    const std::uint64_t first = element / kSize * (kSize / 4);
    const std::uint64_t philox_key = mix64(key_.seed, key_.path_hash);
    const std::uint64_t step = key_.at ? static_cast<std::uint64_t>(key_.at->step) : 0;
    for (std::int64_t group = 0; group < kSize / 4; group += kGroups) {
      Longs c0{}, c2 = step - Longs{}, c3 = (step >> 32) - Longs{};
      for (int lane = 0; lane < kGroups; ++lane)
        c0[lane] = first + static_cast<std::uint64_t>(group + lane);
      Longs c1 = c0 >> 32;
      auto k0 = static_cast<std::uint32_t>(philox_key);
      auto k1 = static_cast<std::uint32_t>(philox_key >> 32);
      for (int round = 0; round < 10; ++round) {
        const Longs a = widening_product(c0, 0xD2511F53u), b = widening_product(c2, 0xCD9E8D57u);
        c0 = (b >> 32) ^ c1 ^ k0;
        c2 = (a >> 32) ^ c3 ^ k1;
        c1 = b;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
      }
      const Longs low = (c0 & 0xffffffffu) | (c1 << 32), high = (c2 & 0xffffffffu) | (c3 << 32);
      for (int lane = 0; lane < kGroups; ++lane) {
        const std::uint64_t four[2] = {low[lane], high[lane]};
        std::memcpy(bits_ + 4 * (group + lane), four, sizeof four);
      }
    }
    return static_cast<std::int64_t>(element % kSize);
  }
  const std::uint32_t* bits() const { return bits_; }

 private:
  Key key_;
  std::uint32_t bits_[kSize];
};

}  // namespace fovea::cpu::FOVEA_ISA
