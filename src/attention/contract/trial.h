#pragma once
// One experiment with one method: its shape, its tokens, and what comes out.

#include <map>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "core/precision.h"

namespace fovea::attention::contract {

struct Trial {
  const AttentionSpec* spec = nullptr;
  config::Node options = {};
  bool causal = false, cross = false;
  std::int64_t batch = 2, queries = 12, keys = 12;
  int heads = 2, kv_heads = 2, qk_dim = 8, v_dim = 8;
  double dropout = 0;
  Position position = Position::none;

  AttentionConfig config() const;
  Trial sized(std::int64_t n) const;  // with n queries and n keys
};

// The longest sequence a trial may have.
constexpr int kMaxLength = 160;

// Inputs and output gradients; reals f64, masks u8, segments i32. Undefined: not given.
struct Tokens {
  Tensor q, k, v, x, q_global, k_global, v_global, bias, dout, dlse;
  Tensor key_valid, query_valid, segments;
  std::map<std::string, Tensor> parameters;  // by name; f64
};

// Drawn from streams of `name`: queries and keys normal times `size`. A method gets x and the
// global projections always, whether it reads them or not.
Tokens draw_tokens(const Trial& trial, const std::string& name = "tokens", double size = 1);
// `to`, with positions [from, end) along the token axis replaced by those of `other`.
Tokens replaced(const Tokens& to, std::int64_t from, const Tokens& other);
Tensor clone(const Tensor& x);
// [batch, n] u8: 1 below each sample's length.
Tensor lengths_mask(const std::vector<std::int64_t>& lengths, std::int64_t n);

struct How {
  Precision precision = Precision::fp32;
  int threads = 1;
  bool backward = true;
  bool training = false;
};

// f64 copies of "o", "lse", "aux", "grad.q", ..., "grad.param.NAME"; what nobody gave is zero.
using Outcome = std::map<std::string, Tensor>;
Outcome run(const Trial& trial, const Tokens& tokens, const How& how = {});
// sum(o dout) + sum(lse dlse over finite lse) + aux of an outcome.
double loss_of(const Outcome& outcome, const Tokens& tokens);

// The largest difference relative to the largest entry of b (at least 1e-2); infinite if infinities
// or NaN disagree.
double distance(const Tensor& a, const Tensor& b);
// How many elements differ; NaN equals NaN.
double differing(const Tensor& a, const Tensor& b);
double nonzero(const Tensor& a);
double nonfinite(const Tensor& a);

}  // namespace fovea::attention::contract
