#pragma once
// What a projection S does to the attention of one head: measured errors beside the bounds that are
// claimed for them. Source: spa.md 3.

#include <cstdint>
#include <span>
#include <vector>

#include "core/view.h"

namespace fovea::study {

// Row-major, f64. Dense scores are dense_scale <q,k>, those of S scale <q s_q, k s_k>.
struct HeadTokens {
  std::int64_t queries = 0, keys = 0;
  int width = 0, projected = 0, v_dim = 0;  // d_k, d', d_v
  std::span<const double> q, k, v;          // [queries,width] [keys,width] [keys,v_dim]
  std::span<const double> s_q, s_k;         // [width,projected]; alike, but for a gate
  double dense_scale = 1, scale = 1;
  bool causal = false;  // key j is seen by queries i >= j - (keys - queries)
};

struct Range {
  double least = 0, mean = 0, most = 0;
};

// Of one matrix, and of what it makes of products: D = S S^T - I.
struct MatrixProbe {
  std::int64_t entries = 0;
  int empty_rows = 0, empty_columns = 0, rank = 0;
  double row_energy_least = 0, row_energy_most = 0;
  double effective_rank = 0;
  std::vector<double> singular;  // of S, the largest first
  double delta2 = 0;             // largest |D_TT|_2 over pairs T of features
  double delta_full = 0;         // |D|_2; at least 1 where d' < d_k
};
MatrixProbe probe_matrix(const HeadTokens& head);

struct HeadProbe {
  Range q_norms, k_norms;
  double q_frobenius = 0, k_frobenius = 0;
  // Of scores of S less dense ones, over pairs that are seen.
  double score_err_rms = 0, score_err_max = 0, score_bias = 0;
  double logit_gain = 0;     // <A~, A> / |A|^2: how much hotter S's scores are
  double expected_gain = 0;  // scale / dense_scale: what an S with E[S S^T] = I makes of them
  // Over all pairs: streamed, by the Gram matrices, and the least that any rank d' leaves.
  double all_pairs_rms = 0, closed_rms = 0, oracle_rms = 0;
  double scores_effective_rank = 0;  // of Q K^T
  double eps_hat = 0;                // most 2 |error| / (|q|^2 + |k|^2): Theorem 1
  double e0_hat = 0;                 // most |<q,k> - <qS,kS>| / (|q| |k|) over pairs that are seen
  double delta_data = 0;             // the same over all pairs
  double attn_frobenius = 0, attn_tv = 0, logit_frobenius = 0, out_err = 0;
  double entropy_dense = 0, entropy_spa = 0;  // means over rows, nats
  double bound_corrected = 0, bound_trivial = 0, c_implied = 0;
  MatrixProbe s;

  double lemma2_ratio() const { return logit_frobenius > 0 ? attn_frobenius / logit_frobenius : 0; }
  bool vacuous() const { return bound_corrected > bound_trivial; }
  // What holds whatever the tokens are; false: the program is wrong, or a theorem.
  bool softmax_is_half_lipschitz() const { return lemma2_ratio() <= 0.5 + 1e-5; }
  bool closed_form_agrees() const;
  bool bounds_hold() const;
};

// Holds a few rows of scores at a time, whatever the length. Threads of `stream` (a host's) change
// no bit. At least one query and one key.
HeadProbe probe_head(const HeadTokens& head, StreamRef stream);

// The least d' for which Theorem 1 promises `epsilon` for all pairs of n tokens: the explicit
// dimension of Johnson and Lindenstrauss for m = 2 n^2 points, with probability 1 - 1/m.
std::int64_t jl_dimension(std::int64_t n, double epsilon);

}  // namespace fovea::study
