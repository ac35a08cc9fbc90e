#pragma once
// Kernel (linear) attention as differentiable ops.

#include "autograd/ops/attention.h"
#include "autograd/ops/feature_map.h"
#include "kernels/linear_attention.h"

namespace fovea {

// How keys are summed; see kernels/linear_attention.h. Tensors may be undefined.
struct LinearMask {
  bool causal = false;  // needs N = M
  Normaliser normaliser = Normaliser::clamp;
  double floor = 1e-6;
  std::int64_t chunk = 128;
  bool lse = false;            // of feature_attention
  Tensor key_valid = {};       // u8 [B,M]; 1 = real
  Tensor query_valid = {};     // u8 [B,N]; undefined: key_valid if N = M, else all valid
  Tensor query_segments = {};  // i32 [B,N], in runs; only equal segments see each other
  Tensor key_segments = {};    // i32 [B,M]; undefined: query_segments (then N = M)
};

// How causal keys lose weight and how much each has, in units of log2; either may be undefined.
struct KeyWeights {
  Var decay = {};    // acc [B,S,M], at most 0
  Var weight = {};   // acc [B,S,M]
  Tensor tops = {};  // acc [B,S,M]: log2 of what causal sums up to a key are divided by, if asked

  // Those of keys whose features were divided by 2^exponent, relative to the largest so far
  // (causal) or of all. exponent acc [B,Hk,M]; slopes acc [H] or undefined: ALiBi's in units of
  // log2; top: LinearState's or undefined.
  static KeyWeights relative(Ctx& ctx, const Tensor& exponent, const Tensor& slopes,
                             const LinearMask& mask, const Tensor& top = {},
                             bool with_tops = false);
};

// What a sequence leaves behind for its next tokens; causal only. Tensors are overwritten.
struct LinearState {
  Tensor sums = {};  // acc [B,S,m,Dv+1]: of features times [values, 1]
  Tensor top = {};   // acc [B,S]: log2 of their scale; exponential maps only, -inf: no key yet
};

// o_i = sum_j w_ij v_j / D_i with w_ij = <a_i, b_j> 2^(weight_j + decays between j and i).
//   a [B,H,N,m], b [B,Hb,M,m], v [B,Hk,M,Dv] of one float type and any strides; see the kernel's
//   header for how heads are grouped. o [B,H,N,Dv], stored as [B,N,H,Dv] so that merge_heads is
//   free. `sums` (LinearState's) is undefined or without gradients.
// lse [B,H,N] of acc, the natural logarithm of the sum of weights (-inf: none), is there where
// `query_exponent` acc [B,H,N] is, the power of two that query features were divided by, and
// weights.tops; `add` is added to it. No gradient comes through it where the floor holds.
// Source: baselines.md 9. Throws ShapeError.
AttentionResult linear_attention(Ctx& ctx, const Var& a, const Var& b, const Var& v,
                                 const KeyWeights& weights, const LinearMask& mask,
                                 const Tensor& sums = {}, const Tensor& query_exponent = {},
                                 double add = 0);

// The same of features that are made on the way and again in the backward pass, so that none are
// kept: the composition is map_features, KeyWeights::relative, linear_attention.
//   q [B,H,N,D], k [B,Hk,M,D], v [B,Hk,M,Dv]; slopes acc [H] or undefined: ALiBi's as decay, causal
//   and of exponential maps only; others get it in `weights`, which exponential maps do not take.
//   lse is there if mask.lse: causal and of exponential maps only, the logarithm of the sum of
//   <phi(q_i), phi(k_j)> with phi's factor m^(-1/2).
AttentionResult feature_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                  const Features& query_map, const Features& key_map,
                                  const KeyWeights& weights, const LinearMask& mask,
                                  const Tensor& slopes = {}, const LinearState& state = {});

// RFA's gate g = sigmoid(z): decay log2 g, weight log2 (1 - g), both 0 at invalid tokens.
//   z [B,M,S]; returns acc [B,S,M]. Source: baselines.md 13.
KeyWeights gate_weights(Ctx& ctx, const Var& z, const Tensor& key_valid = {});

}  // namespace fovea
