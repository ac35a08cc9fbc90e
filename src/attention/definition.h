#pragma once
// Methods as their sources define them, for the checks: sums over pairs of tokens in plain loops,
// of f64 tokens on the CPU. Slow, and the shortest way to read what a method computes.

#include <functional>
#include <string_view>
#include <vector>

#include "attention/attention.h"

namespace fovea::attention {

// A query and a key that it sees.
struct Pair {
  std::int64_t batch, head, kv_head, query, key;  // head reads kv_head = head / (H / Hk)
  const double *q, *k;                            // their rows, config.qk_dim wide
};

// o_i = sum_j w_ij v_j / divisor(sum_j w_ij, number of keys that i sees) over the keys that masks,
// segments and causality show; 0 where there is none. [B,H,N,Dv].
Tensor weighted_by_pairs(const AttentionConfig& config, const AttentionInput& in,
                         const std::function<double(const Pair&)>& weight,
                         const std::function<double(double mass, double keys)>& divisor);

// The same with weights exp(score_ij), divided by their sum. A score of -inf hides the pair.
Tensor softmax_by_pairs(const AttentionConfig& config, const AttentionInput& in,
                        const std::function<double(const Pair&)>& score);

// What model.position: alibi leaves of a weight: exp(-slope_h (i - j)) in causal attention, else 1.
double alibi_decay(const AttentionConfig& config, const Pair& pair);

// Every element of the method's own parameter or buffer of that name; empty if it has none.
std::vector<double> values_of(Attention& method, std::string_view name);

}  // namespace fovea::attention
