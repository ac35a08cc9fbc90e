#pragma once
// Feature maps of kernel attention: phi with <phi(q), phi(k)> in the place of exp(<q, k>).
// Source: baselines.md 10 to 13.

#include "kernels/dispatch.h"

namespace fovea {

enum class FeatureKind : std::uint8_t {
  softmax,       // exp(<w_r, x^> - |x^|^2 / 2 - s) + eps, x^ = scale x: FAVOR+ (10.1)
  softmax_pair,  // the same of every w_r, then of every -w_r: its hyperbolic form
  relu_random,   // max(<w_r, x^>, 0) + offset (10.4)
  relu,          // max(x^, 0) + offset
  elu,           // elu(x^) + 1 (11)
  cosine,        // relu(x) sin t, then relu(x) cos t, t = (pi / 2) (i + 1) / reference (12)
  fourier,       // sin u_r, then cos u_r; u = <sigma w_r, x~> / temperature, x~ = x / (|x| + 1e-3)
                 // (13)
};

// The s of softmax features, a constant of the backward pass.
enum class Stabiliser : std::uint8_t {
  none,      // s = 0: with eps = 0, where the scale of a row cancels
  own,       // the row's largest <w_r, x^>
  shared,    // the largest over the valid rows of its sample, head and segment
  constant,  // s = 0, and exponents are clamped at 60, with no gradient beyond
};

// phi without the factors that cancel in a ratio (m^(-1/2), RFA's c). Views may be empty.
struct FeatureMap {
  FeatureKind kind = FeatureKind::elu;
  Stabiliser stabiliser = Stabiliser::none;
  double scale = 1;
  double eps = 0;        // softmax
  double offset = 0;     // relu
  double reference = 1;  // cosine: a number of positions, at least as many as there are
  double temperature = 1;
  View w = {};  // f32 [R, D], or [G, R, D] with a matrix for each of G groups of heads; random maps
  View sigma = {};      // [H, D] as x; fourier
  View entries = {};    // i32 [H]: the matrix of each head, instead of its group's; fourier
  View positions = {};  // i32 [B,N]; empty: 0..N-1; cosine
  View valid = {};      // u8 [B,N]: rows of 0 are zero and send no gradient, whatever they hold
  View segments = {};   // i32 [B,N]; shared
  // acc [B,H,N], contiguous, or empty: room for what Stabiliser::shared found in the forward pass,
  // which one made again may read instead of finding it again.
  View shared = {};
  bool again = false;  // made a second time, for a backward pass: meta counts no useful work
};

// How many features a row of width `d` has.
inline std::int64_t feature_count(const FeatureMap& map, std::int64_t d) {
  const std::int64_t rows = map.w ? map.w.dim[map.w.rank - 2] : d;
  const bool twice = map.kind == FeatureKind::softmax_pair || map.kind == FeatureKind::cosine ||
                     map.kind == FeatureKind::fourier;
  return twice ? 2 * rows : rows;
}

// y [B,H,N,m] as x, contiguous; x [B,Hx,N,D], unit last stride, others free, H a multiple of Hx:
// head h maps x's head h / (H/Hx).
// Softmax features are divided by 2^exponent, a whole number of each row that brings its largest
// feature into (1/2, 1]; exponent and shift acc [B,H,N], contiguous, are assigned, the former may
// be empty. shift = s + exponent ln 2 is what the backward pass subtracts. Both are not touched by
// other maps.
FOVEA_KERNEL(features_forward, StreamRef, const View& y, const View& exponent, const View& shift,
             const View& x, const FeatureMap& map)

// dx as x, contiguous, is assigned the gradient of <y, dy>, summed over the heads that map the same
// row; dy [B,H,N,m] of any float type, contiguous. dsigma [H,D] of acc is accumulated; empty: not
// wanted. dx may be empty. `shift` is the forward's.
FOVEA_KERNEL(features_backward, StreamRef, const View& dx, const View& dsigma, const View& dy,
             const View& x, const View& shift, const FeatureMap& map)

namespace meta {

// The product with w of every row.
inline void count_projection(StreamRef stream, const View& y, const View& x,
                             const FeatureMap& map) {
  if (!map.w || map.again) return;
  static_cast<CostCounter*>(stream.native)->flops +=
      2 * static_cast<double>(y.dim[0] * y.dim[1] * y.dim[2]) *
      static_cast<double>(map.w.dim[map.w.rank - 2] * x.dim[3]);
}
inline void features_forward(StreamRef stream, const View& y, const View& exponent,
                             const View& shift, const View& x, const FeatureMap& map) {
  count(stream, y, exponent, shift, x, map.w);
  count_projection(stream, y, x, map);
}
inline void features_backward(StreamRef stream, const View& dx, const View& dsigma, const View& dy,
                              const View& x, const View& shift, const FeatureMap& map) {
  count(stream, dx, dsigma, dy, x, shift, map.w);
  count_projection(stream, dy, x, map);  // of two: the other makes the features again
}

}  // namespace meta

}  // namespace fovea
