#pragma once
// One experiment with one method: its shape, its tokens, where it runs, and what comes out.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "attention/standalone.h"
#include "autograd/ctx.h"
#include "core/precision.h"

namespace fovea::attention::contract {

// The longest sequence a trial has, unless it says so.
constexpr int kMaxLength = 160;

// Where trials run, one after another: a GPU's stream and library handles cost more than a trial.
struct Place {
  explicit Place(Device device, int threads = 1)
      : stream(device, threads), memory(memory_source(device)) {}
  Device device() const { return stream.device(); }
  Stream stream;
  CachingAllocator memory;
};

struct Trial {
  const AttentionSpec* spec = nullptr;
  config::Node options = {};
  bool causal = false, cross = false, packed = false;
  std::int64_t batch = 2, queries = 12, keys = 12;
  int heads = 2, kv_heads = 2, qk_dim = 8, v_dim = 8;
  double dropout = 0;
  Position position = Position::none;
  int max_len = kMaxLength;
  // Null: the CPU. fp64 runs there whatever this is: it is what the others are compared with.
  std::shared_ptr<Place> place = nullptr;

  AttentionConfig config() const;  // of a model; tokens and the method are as it is projected
  AttentionConfig projected() const;
  Trial sized(std::int64_t n) const;  // with n queries and n keys
};

// Why `trial` cannot be built, or "".
std::string refusal_of(const Trial& trial);
// `trial` with heads of `width`, or of the first other width that its options go with: a pattern of
// features may ask for one. As it was where no width does.
Trial with_width(Trial trial, int width);

// Inputs and output gradients, on the CPU; reals f64, masks u8, segments i32. Undefined: not given.
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
  int threads = 1;  // where the trial names no place
  bool backward = true;
  bool training = false;
};

// f64 copies on the CPU of "o", "lse", "aux", "grad.q", ..., "grad.param.NAME"; what nobody gave is
// zero.
using Outcome = std::map<std::string, Tensor>;

// The method of a trial at work, with the parameters of `tokens`, after the hooks of step 0.
class Session {
 public:
  Session(const Trial& trial, const Tokens& tokens, const How& how = {});

  Ctx& ctx() { return ctx_; }
  Attention& method() { return alone_.method(); }
  Standalone& alone() { return alone_; }
  // Forward, and backward from dout, dlse and aux if How says so.
  Outcome outcome(const Tokens& tokens);
  // Tokens [from, to), or all, where the method works. `with_gradients`: as leaves.
  AttentionInput input(const Tokens& tokens, bool with_gradients);
  AttentionInput input(const Tokens& tokens, std::int64_t from, std::int64_t to);
  // An f64 copy on the CPU.
  Tensor fetched(const Tensor& x);

 private:
  Tensor placed(const Tensor& x, DType dtype);
  Tensor seed_of(const Var& output, const Tensor& gradient);
  void keep(Outcome& into, const std::string& name, const Tensor& value, const Tensor& like);

  How how_;
  std::shared_ptr<Place> place_;
  Standalone alone_;
  Ctx ctx_;
};

Outcome run(const Trial& trial, const Tokens& tokens, const How& how = {});
// sum(o dout) + sum(lse dlse over finite lse) + aux of an outcome.
double loss_of(const Outcome& outcome, const Tokens& tokens);

// The largest difference relative to the largest entry of b (at least 1e-2); infinite if infinities
// or NaN disagree.
double distance(const Tensor& a, const Tensor& b);
// The largest one of all parts of b.
double distance(const Outcome& a, const Outcome& b);
// How many elements differ; NaN equals NaN.
double differing(const Tensor& a, const Tensor& b);
double differing(const Outcome& a, const Outcome& b);
double nonzero(const Tensor& a);
double nonfinite(const Tensor& a);

}  // namespace fovea::attention::contract
