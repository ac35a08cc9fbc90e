#pragma once
// Register-blocked products of small tiles, and the few vector functions flash attention needs
// beyond lanes.h. Generic in the compute type: float runs in vectors, double in plain scalars of
// the same code.

#include <cstring>

#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

template <class C>
using Vector = typename Lane<C>::V;
// Vectors of one register block.
template <class C>
constexpr int kBlockVectors = Lane<C>::width == 8 ? 2 : 4;

inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
// Masks are -1 (yes) or 0 (no) in every lane; `kind` only picks the width.
inline double select(std::int32_t mask, double yes, double no) {
  return mask != 0 ? yes : no;
}
inline Ints load_ints(const std::int32_t* at, Floats /*kind*/) {
  Ints out;
  std::memcpy(&out, at, sizeof out);
  return out;
}
inline std::int32_t load_ints(const std::int32_t* at, double /*kind*/) {
  return *at;
}
inline Ints at_least(Ints a, std::int32_t b) {
  return a >= b;
}
inline std::int32_t at_least(std::int32_t a, std::int32_t b) {
  return a >= b ? -1 : 0;
}
inline Ints equal(Ints a, std::int32_t b) {
  return a == b;
}
inline std::int32_t equal(std::int32_t a, std::int32_t b) {
  return a == b ? -1 : 0;
}
inline Ints equal(Floats a, Floats b) {
  return a == b;
}
inline std::int32_t equal(double a, double b) {
  return a == b ? -1 : 0;
}

// `n` rounded up to whole vectors of C.
template <class C>
constexpr std::int64_t padded(std::int64_t n) {
  return (n + Lane<C>::width - 1) / Lane<C>::width * Lane<C>::width;
}

// A matrix that is read element by element: any strides.
template <class C>
struct Scalars {
  const C* at;
  std::int64_t row, column;
};

template <class C, int R, int N>
void product_block(C* out, std::int64_t ldo, Scalars<C> a, const C* x, std::int64_t ldx,
                   std::int64_t inner, bool add) {
  constexpr int kStep = Lane<C>::width;
  Vector<C> sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      sums[r][n] = add ? load(out + r * ldo + n * kStep) : every<C>(0);
  }
  for (std::int64_t k = 0; k < inner; ++k) {
    Vector<C> right[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      right[n] = load(x + k * ldx + n * kStep);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector<C> left = every<C>(a.at[r * a.row + k * a.column]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n)
        sums[r][n] = fused(left, right[n], sums[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n)
      store(out + r * ldo + n * kStep, sums[r][n]);
  }
}

template <class C, int R>
void product_rows(C* out, std::int64_t ldo, Scalars<C> a, const C* x, std::int64_t ldx,
                  std::int64_t inner, std::int64_t vectors, bool add) {
  constexpr int kStep = Lane<C>::width, kBlock = kBlockVectors<C>;
  std::int64_t n = 0;
  for (; n + kBlock <= vectors; n += kBlock) {
    product_block<C, R, kBlock>(out + n * kStep, ldo, a, x + n * kStep, ldx, inner, add);
  }
  for (; n < vectors; ++n)
    product_block<C, R, 1>(out + n * kStep, ldo, a, x + n * kStep, ldx, inner, add);
}

// out[r][c] = (add ? out[r][c] : 0) + sum_k a[r][k] x[k][c] for r < rows, k < inner, c < vectors *
// width. Every element is one chain of fused multiply-adds in ascending k, so its bits do not
// depend on its place or on the number of rows.
template <class C>
void tile_product(C* out, std::int64_t ldo, Scalars<C> a, const C* x, std::int64_t ldx,
                  std::int64_t rows, std::int64_t inner, std::int64_t vectors, bool add) {
  std::int64_t r = 0;
  const auto from = [&](std::int64_t row) {
    return Scalars<C>{a.at + row * a.row, a.row, a.column};
  };
  // One vector has few chains in flight: more rows hide the latency.
  for (; vectors == 1 && r + 8 <= rows; r += 8) {
    product_block<C, 8, 1>(out + r * ldo, ldo, from(r), x, ldx, inner, add);
  }
  for (; r + 4 <= rows; r += 4)
    product_rows<C, 4>(out + r * ldo, ldo, from(r), x, ldx, inner, vectors, add);
  for (; r < rows; ++r)
    product_rows<C, 1>(out + r * ldo, ldo, from(r), x, ldx, inner, vectors, add);
}

}  // namespace fovea::cpu::FOVEA_ISA
