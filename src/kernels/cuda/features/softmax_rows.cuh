#pragma once
// The stabiliser and the scale of rows of softmax features.

#include "kernels/cuda/features/project.cuh"

namespace fovea::cuda {

constexpr float kFeatureClamp = 60;  // of exponents under Stabiliser::constant

// Of one row: features are e^(p - minus) + extra.
struct RowScale {
  float minus = 0, extra = 0;
  float shift = 0, exponent = 0;

  // most: the row's largest product; norm: |x^|^2 / 2; shared: what Stabiliser::shared found.
  __device__ __forceinline__ RowScale(const FeatureCall& call, float most, float norm,
                                      float shared) {
    const float stabiliser = call.stabiliser == Stabiliser::own      ? most
                             : call.stabiliser == Stabiliser::shared ? shared
                                                                     : 0.0f;
    float top = most - norm - stabiliser;
    if (call.stabiliser == Stabiliser::constant) top = fminf(top, kFeatureClamp);
    if (call.kind != FeatureKind::relu_random)
      exponent = call.eps > 0 ? ceilf(log2f(expf(top) + call.eps)) : ceilf(top * kLog2E);
    shift = stabiliser + exponent * kLn2;
    minus = call.stabiliser == Stabiliser::constant ? norm : norm + shift;
    extra = call.eps > 0 ? call.eps * exp2f(-exponent) : 0.0f;
  }
};

// What a lane's two rows of 64 need of their scales, and which rows there are.
struct RowScales {
  float minus[2], extra[2], shift[2];
  bool valid[2];
};

// For a warp whose lanes hold rows `row[r]` of head h of sample b, four lanes a row. Reads the
// shared stabiliser and writes shift and exponent.
__device__ __forceinline__ RowScales scale_rows(const FeatureCall& call, const float (&most)[2],
                                                const float (&norm)[2], int b, int h,
                                                const int (&token)[2], int lane) {
  RowScales out;
  float shared[2] = {};
  bool exists[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    exists[r] = token[r] < call.rows;
    out.valid[r] = exists[r] && call.tokens.is_valid(b, token[r]);
    if (call.stabiliser == Stabiliser::shared && out.valid[r])
      shared[r] = call.found[call.row_of(b, h) + token[r]];
  }
  __syncwarp();  // all lanes of a row have read it before one writes
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const RowScale row(call, most[r], norm[r], shared[r]);
    out.minus[r] = row.minus, out.extra[r] = row.extra, out.shift[r] = row.shift;
    if (call.kind == FeatureKind::relu_random || !exists[r] || lane % 4 != 0) continue;
    const std::int64_t place = call.row_of(b, h) + token[r];
    if (call.exponent != nullptr) call.exponent[place] = out.valid[r] ? row.exponent : 0.0f;
    call.shift[place] = out.valid[r] ? row.shift : 0.0f;
  }
  return out;
}

}  // namespace fovea::cuda
