#pragma once
// Attention of the same tokens in several rounds, each with tiles of its own, as one softmax.

#include <vector>

#include "autograd/ops/attention.h"

namespace fovea {

// What tells rounds apart: `plan` is for R B samples, of which r B + b is sample b in round r.
struct AttentionRounds {
  std::int64_t count = 1;
  std::shared_ptr<const AttentionPlan> plan;
  std::vector<Key> dropout_keys = {};  // one a round, where the mask has dropout
  double alone_lse = 0;                // of a token that sees nothing but takes its value
};

// merge_attention (low_rank.h) over flash_attention of every round, with alone = v and valid =
// mask.key_valid: a pair counts as often as rounds show it. Rounds of one sample are one launch;
// their gradients are summed in acc, in order. N = M, H = Hk; mask.plan and mask.dropout_key are
// not read.
//   q, k [B,H,N,D], v [B,H,N,Dv]. Throws ShapeError.
AttentionResult round_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                const AttentionMask& mask, const AttentionRounds& rounds);

}  // namespace fovea
