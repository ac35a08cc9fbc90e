#pragma once
// Locality-sensitive hashing of tokens, and the patterns of attention that follow from it. No
// gradients: hashes and orders are constants. Source: baselines.md 15.2, 15.3.

#include "autograd/ctx.h"
#include "autograd/ops/attention_plan.h"
#include "kernels/lsh.h"

namespace fovea {

// How the tokens of B samples and H heads are sorted in R rounds. i32, on the context's device.
struct LshTables {
  Tensor bucket, order, slot;  // [R,B,H,N] (kernels/lsh.h)
  Tensor lengths;              // [B]: valid tokens

  std::int64_t rounds() const { return bucket.size(0); }
  // The tokens of one round in their order: [B,H,N].
  Tensor round_order(std::int64_t round) const;
  // The pairs of one part as a rule for calls with a batch of B H and one head; in slots, but for
  // windowed parts, which take no orders and memory N^2 / 8 bytes a head.
  PlanRule rule(Ctx& ctx, const LshPart& part) const;
};

// Hashes x [B,H,N,D] by rotations f32 [R,D,C] and sorts by (bucket, token). valid u8 [B,N] or
// undefined. Throws ShapeError.
LshTables hash_tokens(Ctx& ctx, const Tensor& x, const Tensor& rotations, const Tensor& valid,
                      std::int64_t bucket_size);

}  // namespace fovea
