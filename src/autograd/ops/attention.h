#pragma once
// Exact softmax attention as differentiable ops.

#include <memory>

#include "autograd/ctx.h"
#include "autograd/ops/attention_plan.h"
#include "autograd/var.h"

namespace fovea {

// How scores are masked and biased. Tensors may be undefined.
struct AttentionMask {
  bool causal = false;         // key j is visible to query i iff j <= i + (M - N)
  double scale = 0;            // 0: 1/sqrt(D)
  double softcap = 0;          // scaled products x become softcap tanh(x / softcap); 0: no cap
  Tensor key_valid = {};       // u8 [B,M]; 1 = real
  Tensor query_valid = {};     // u8 [B,N]; undefined: key_valid if N = M, else all valid
  Tensor query_segments = {};  // i32 [B,N]; only equal segments see each other
  Tensor key_segments = {};    // i32 [B,M]; undefined: query_segments (then N = M)
  Tensor alibi_slopes = {};    // acc [H]: score -= slope_h |i + (M - N) - j|
  double dropout = 0;          // of normalised probabilities, if ctx.training
  Key dropout_key = {};  // element ((b H + h) N + i) M + j, b counted from the global batch's start
  // A pattern on top, which the tiled kernels walk; of the call's shape, causality and device.
  std::shared_ptr<const AttentionPlan> plan = {};
};

struct AttentionResult {
  Var o;    // [B,H,N,Dv], stored as [B,N,H,Dv] so that merge_heads is free
  Var lse;  // [B,H,N] of acc: natural log of the softmax denominator; -inf where no key is visible
};

// O = softmax(scale Q K^T + bias) V, tiled with an online softmax: O(N) memory, forward and
// backward.
//   q [B,H,N,D], k [B,Hk,M,D], v [B,Hk,M,Dv], any strides; H a multiple of Hk, query head h reads
//   head h / (H/Hk). bias [1|B, 1|H, N, M] or undefined. A fully masked row is 0 and sends no
//   gradient.
// A row's bits depend on its query and on the keys it sees, on nothing else. A bias of -1e9 over a
// whole row does not hide it as -inf does: kernels/flash.h.
// Source: baselines.md 1 and 2. Throws ShapeError.
AttentionResult flash_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v, const Var& bias,
                                const AttentionMask& mask);

// The same by the materialised N x M probabilities (baselines.md 2.1, 2.2): the oracle. Takes no
// plan.
AttentionResult reference_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                    const Var& bias, const AttentionMask& mask);

}  // namespace fovea
