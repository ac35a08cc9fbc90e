#pragma once
// Philox4x32-10 (Salmon et al., SC 2011): counter-based random numbers. The same function on every
// backend, so every backend sees the same bits.

#include <cstdint>

#ifdef __CUDACC__
#define FOVEA_HOST_DEVICE __host__ __device__
#else
#define FOVEA_HOST_DEVICE
#endif

namespace fovea {

// Staged in device memory before every micro-batch; random numbers are addressed by it.
struct StepState {
  std::int64_t step = 0;          // optimizer step, from 0
  std::int64_t first_sample = 0;  // index in the global batch of the micro-batch's first sample
};

// Names a stream of random numbers: a pure function of (seed, path, step, global sample, element).
// There is no generator to advance, so call order, recompute and graph replay do not matter.
struct Key {
  std::uint64_t seed = 0, path_hash = 0;
  const StepState* at = nullptr;  // null: step 0, sample 0
};

struct Philox4 {
  std::uint32_t v[4];
};

FOVEA_HOST_DEVICE inline Philox4 philox4x32(std::uint64_t key, std::uint64_t counter_low,
                                            std::uint64_t counter_high) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low),
                c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high),
                c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(b);
    c3 = static_cast<std::uint32_t>(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Mixes two words into one (SplitMix64 finaliser): how a key's seed and path become one Philox key.
FOVEA_HOST_DEVICE inline std::uint64_t mix64(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a + 0x9E3779B97F4A7C15ull * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The 32 random bits of one element. Elements 4 i to 4 i + 3 come out of one Philox call.
FOVEA_HOST_DEVICE inline std::uint32_t random_bits(const Key& key, std::uint64_t element) {
  const std::uint64_t step = key.at ? static_cast<std::uint64_t>(key.at->step) : 0;
  return philox4x32(mix64(key.seed, key.path_hash), element >> 2, step).v[element & 3];
}

// Uniform in (0, 1), never 0 or 1: 23 bits and a half, which f32 holds exactly (24 would round to
// 1).
FOVEA_HOST_DEVICE inline float uniform_float(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

}  // namespace fovea
