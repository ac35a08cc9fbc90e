#pragma once
// The vocabulary of the CPU kernels: vectors of f32 as wide as the instruction set of this
// compilation, loads and stores that convert 16-bit types, and the elementary functions. Everything
// lives in the instruction set's own namespace, so that no inline function compiled for one set is
// linked into another. f64 kernels are plain loops: the oracle.

#include <cmath>
#include <cstdint>

#include <immintrin.h>

#include "core/dtype.h"
#include "core/half.h"
#include "core/view.h"

namespace fovea::cpu::FOVEA_ISA {

#ifdef FOVEA_ISA_avx512
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t Shorts __attribute__((vector_size(kLanes * 2)));
typedef float FloatsUnaligned __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef std::uint16_t ShortsUnaligned
    __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));

// The type in which values of T are computed: f64 for f64, else f32.
template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

inline Floats splat(float value) {
  return value - Floats{};
}

inline Floats load(const float* at) {
  return *reinterpret_cast<const FloatsUnaligned*>(at);
}
inline void store(float* at, Floats value) {
  *reinterpret_cast<FloatsUnaligned*>(at) = value;
}
inline Floats load(const BFloat16* at) {
  const Shorts bits = *reinterpret_cast<const ShortsUnaligned*>(at);
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Ints) << 16);
}
inline void store(BFloat16* at, Floats value) {
  const Ints bits = reinterpret_cast<Ints>(value);
  const Ints rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Ints quiet = (bits >> 16) | 0x40;
  const Ints is_nan = value != value;
  *reinterpret_cast<ShortsUnaligned*>(at) =
      __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), Shorts);
}
// GCC 12 warns of an uninitialised value inside the plain 512-bit intrinsics; the zero-masked ones
// with a full mask are the same instructions without the warning.
#ifdef FOVEA_ISA_avx512
inline Floats load(const Half* at) {
  return reinterpret_cast<Floats>(
      _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))));
}
inline void store(Half* at, Floats value) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(at),
      _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
}
#else
inline Floats load(const Half* at) {
  return reinterpret_cast<Floats>(
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}
inline void store(Half* at, Floats value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                   _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
}
#endif

// One element, converted.
inline float load_one(const float* at) {
  return *at;
}
inline double load_one(const double* at) {
  return *at;
}
inline float load_one(const BFloat16* at) {
  return static_cast<float>(*at);
}
inline float load_one(const Half* at) {
  return static_cast<float>(*at);
}
inline void store_one(float* at, float value) {
  *at = value;
}
inline void store_one(double* at, double value) {
  *at = value;
}
inline void store_one(BFloat16* at, float value) {
  *at = BFloat16(value);
}
inline void store_one(Half* at, float value) {
  *at = Half(value);
}

// The first `n` lanes; the others are `rest`. n in [0, kLanes].
template <class T>
Floats load_some(const T* at, std::int64_t n, float rest = 0) {
  Floats out = splat(rest);
  for (int i = 0; i < n; ++i)
    out[i] = load_one(at + i);
  return out;
}
template <class T>
void store_some(T* at, Floats value, std::int64_t n) {
  for (int i = 0; i < n; ++i)
    store_one(at + i, value[i]);
}

inline Floats min(Floats a, Floats b) {
  const Ints less = a < b;
  return reinterpret_cast<Floats>((less & reinterpret_cast<Ints>(a)) |
                                  (~less & reinterpret_cast<Ints>(b)));
}
inline Floats max(Floats a, Floats b) {
  const Ints greater = a > b;
  return reinterpret_cast<Floats>((greater & reinterpret_cast<Ints>(a)) |
                                  (~greater & reinterpret_cast<Ints>(b)));
}
inline Floats select(Ints mask, Floats yes, Floats no) {
  return reinterpret_cast<Floats>((mask & reinterpret_cast<Ints>(yes)) |
                                  (~mask & reinterpret_cast<Ints>(no)));
}
inline Floats fused(Floats a, Floats b, Floats c) {  // a * b + c, rounded once
#ifdef FOVEA_ISA_avx512
  return reinterpret_cast<Floats>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#else
  return reinterpret_cast<Floats>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#endif
}

inline Floats sqrt(Floats v) {
#ifdef FOVEA_ISA_avx512
  return reinterpret_cast<Floats>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(v)));
#else
  return reinterpret_cast<Floats>(_mm256_sqrt_ps(reinterpret_cast<__m256>(v)));
#endif
}

// Sums and extrema over the lanes, in a fixed tree order.
inline float sum(Floats v) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      v[i] += v[i + half];
  }
  return v[0];
}
inline float max_lane(Floats v) {
  float out = v[0];
  for (int i = 1; i < kLanes; ++i)
    out = v[i] > out ? v[i] : out;
  return out;
}

// 2^n e^r for |r| <= ln 2 / 2: e^r by its Taylor polynomial of degree 7, which is 1 at r = 0, 2^n
// by exponent bits, in two factors that keep n = 128 and the subnormal range exact enough.
inline Floats scaled_exp(Floats r, Ints n) {
  Floats p = splat(1.0f / 5040);
  p = fused(p, r, splat(1.0f / 720));
  p = fused(p, r, splat(1.0f / 120));
  p = fused(p, r, splat(1.0f / 24));
  p = fused(p, r, splat(1.0f / 6));
  p = fused(p, r, splat(0.5f));
  p = fused(p * r, r, r + 1.0f);
  const Ints half = n >> 1;
  const Floats first = reinterpret_cast<Floats>((half + 127) << 23);
  const Floats second = reinterpret_cast<Floats>((n - half + 127) << 23);
  return p * first * second;
}

// e^x to within 2 units in the last place; subnormal below -87.3, 0 below -104, infinity
// above 88.7, NaN stays NaN. x = n ln 2 + r, |r| <= ln 2 / 2.
inline Floats exp(Floats x) {
  const Floats clamped = min(max(x, splat(-104.0f)), splat(89.0f));
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = fused(clamped, splat(1.44269504f), magic);
  const Floats n = shifted - magic;
  Floats r = fused(n, splat(-0.693359375f), clamped);
  r = fused(n, splat(2.12194440e-4f), r);
  const Ints whole = reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic);
  return select(x != x, x, scaled_exp(r, whole));
}

// tanh to within 4 units in the last place: by e^(2x), which cancels near 0, so below 0.6 by
// x + x^3 P(x^2), where P interpolates (tanh(x)/x - 1)/x^2 at the Chebyshev points of [0, 0.37].
inline Floats tanh(Floats x) {
  const Floats square = x * x;
  Floats p = splat(-0.00621213867f);
  p = fused(p, square, splat(0.0210743841f));
  p = fused(p, square, splat(-0.0538667496f));
  p = fused(p, square, splat(0.133328712f));
  p = fused(p, square, splat(-0.333333299f));
  const Floats near = fused(p * square, x, x);
  const Floats far = 1.0f - 2.0f / (exp(2.0f * x) + 1.0f);
  return select(square < splat(0.36f), near, far);
}

inline float exp(float x) {
  return std::exp(x);
}
inline double exp(double x) {
  return std::exp(x);
}

// Calls fn with a null pointer to the element type of a float dtype: for_float(dtype, [&]<class
// T>(T*) {...}).
template <class F>
void for_float(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::f64:
      return fn(static_cast<double*>(nullptr));
    case DType::f32:
      return fn(static_cast<float*>(nullptr));
    case DType::bf16:
      return fn(static_cast<BFloat16*>(nullptr));
    case DType::f16:
      return fn(static_cast<Half*>(nullptr));
    default:
      __builtin_trap();  // ops check dtypes before they call
  }
}

}  // namespace fovea::cpu::FOVEA_ISA
