#pragma once
// Landmarks: a sequence by the means of its segments, and what Nystrom's method does with them.
// Source: baselines.md 14.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// How every sample is cut into m segments (kernels/landmarks.h); on the context's device.
struct LandmarkCut {
  Tensor begin, size;  // i32 [B, m + 1], [B,m]
  Tensor present;      // u8 [B,m]: the segment has tokens
  Tensor single;       // u8 [B]: as many segments as tokens, or fewer tokens than m
  Tensor valid;        // u8 [B,N] or undefined: what it was cut by

  static LandmarkCut of(Ctx& ctx, const Tensor& valid, std::int64_t batch, std::int64_t tokens,
                        std::int64_t landmarks);
};

// The means of x [B,Hx,N,D] over the segments: [B,H,m,D], head h of x's head h Hx / H; 0 where a
// segment is empty. Throws ShapeError.
Var segment_mean(Ctx& ctx, const Var& x, const LandmarkCut& cut, std::int64_t heads);

// yes[b] for samples with flags[b] != 0, else no[b]. Equal shapes [B, ...], flags u8 [B].
Var choose_samples(Ctx& ctx, const Tensor& flags, const Var& yes, const Var& no);

// The pseudo-inverse of every matrix of a [..., m, m] after `iterations` steps of
//   P = A Z,  Z <- Z (13 I - P (15 I - P (7 I - P))) / 4,  Z_0 = A^T / (|A|_1 |A|_inf),
// the norms being each matrix's own, and constants of the backward pass. f32 or f64. Keeps every Z.
// Source: baselines.md 14.1, 14.2.
Var pseudo_inverse(Ctx& ctx, const Var& a, int iterations);

// o + the convolution of v along the tokens, with w [H,T] for each head: zero beyond the ends and
// at invalid tokens; invalid tokens keep o. o [B,H,N,Dv], v [B,Hk,N,Dv]. Throws ShapeError.
Var add_token_conv(Ctx& ctx, const Var& o, const Var& v, const Var& w, const Tensor& valid);

}  // namespace fovea
