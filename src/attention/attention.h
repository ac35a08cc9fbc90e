#pragma once
// The attention seam. A method is only the operator between projections and output; what it
// declares in its AttentionSpec buys training, evaluation, checks, benchmarks and docs.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/ops/attention.h"
#include "config/option.h"
#include "nn/module.h"

namespace fovea::attention {

// The widest heads that a GPU's tiled kernel takes (kernels/flash.h).
constexpr int kWidestTiledOnCuda = 256;

enum class Position { none, sinusoidal, learned, rope, alibi };

// What a method is built from. qk_dim and v_dim are widths of one head.
struct AttentionConfig {
  int n_embd = 0, n_head = 1, n_kv_head = 1, qk_dim = 0, v_dim = 0;
  int max_len = 0;  // model.block_size
  int layer = 0, n_layer = 1;
  bool causal = true, cross = false;
  Position position = Position::none;
  double dropout = 0;  // of attention probabilities, while training
  nn::SharedParameters* shared = nullptr;
  bool global_mask = false;  // batches bring a global_mask
  bool folded = false;       // for costs: qk_map() is part of the projections
  bool packed = false;       // batches bring segments: data.pack is documents
};

// Whether a token sees none behind it; cross-attention sees all keys.
inline bool is_causal(const AttentionConfig& config) {
  return config.causal && !config.cross;
}

// B batch, H query heads, Hk key/value heads, N queries, M keys, C model width. Strided views
// allowed.
struct AttentionInput {
  Var q, k, v;                       // [B,H,N,Dk] [B,Hk,M,Dk] [B,Hk,M,Dv]
  Var x;                             // [B,N,C] the block's normalised input
  Var q_global, k_global, v_global;  // only if asked for in projections()
  Var q_unrotated, k_unrotated;
  Var bias;                       // [1|B, 1|H, N, M] added to the scores
  Tensor key_valid, query_valid;  // u8 [B,M], [B,N]; 1 = real
  Tensor segments, key_segments;  // i32 [B,N], [B,M]; key_segments undefined: segments
  Tensor positions;               // i32 [B,N]
  Tensor global_mask;             // u8 [B,N]
  bool mapped = false;            // q and k have been through qk_map()
};

// o [B,H,N,Dv]; the others where the method defines them, differentiable.
struct AttentionOutput {
  Var o = {}, lse = {}, den = {}, m = {}, aux = {};
};

// A linear map of the feature axis of q and k (SPA's S) that whoever makes q and k may apply, or
// fold into the projections where nothing stands between (spa.md 1.4).
struct FeatureMap {
  enum class Site { before_rope, after_rope };
  int q_heads = 1, k_heads = 1, width = 0;  // of q and k behind it
  Site site = Site::before_rope;
};
// Its matrices: [G,in,out] of acc(q) each, as project_features takes them.
struct FeatureMatrices {
  Var q, k;
};

// What a method remembers of the past while decoding.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  virtual std::int64_t length() const = 0;           // tokens seen
  virtual std::int64_t bytes_per_token() const = 0;  // of cache, for one sample and layer
  virtual void reorder(Ctx& ctx, std::span<const std::int64_t> samples) = 0;  // for beams
};

class Attention : public nn::Module {  // before_step, after_step, aux_loss are inherited
 public:
  virtual AttentionOutput forward(Ctx& ctx, const AttentionInput& in) = 0;
  // A map of q and k that forward applies itself unless `in.mapped`; and its matrices of this step.
  virtual std::optional<FeatureMap> qk_map() const { return std::nullopt; }
  virtual FeatureMatrices map_matrices(Ctx& ctx);
  // Null: the method cannot decode step by step; the caller recomputes, visibly.
  virtual std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length);
  // One or more new tokens: `in` holds only them (N = M = new tokens), with key_valid where samples
  // get different numbers (the real ones first). Appends them, then attends over all. Throws
  // ShapeError past max_length.
  virtual AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in);
  // The kernel that forward uses, and why a faster one was refused ("" if none was).
  virtual std::string kernel() const = 0;
  virtual std::string refused() const { return {}; }
};

struct Capabilities {
  bool causal = true, bidirectional = true, cross = false;
  bool padding = true, segments = false, bias = false, dropout = false;
  bool any_length = true;     // nothing is bound to a length; else AttentionSpec::longest is
  bool static_shapes = true;  // no data-dependent sizes: capturable
  bool exact = false;         // equals softmax attention under its mask
  bool decode = false;
  bool owns_layer = false;   // a preset that replaces the whole layer
  bool gqa = true;           // fewer key/value heads than query heads
  bool convex = true;        // an output row is a convex combination of value rows
  bool smooth = true;        // gradients are derivatives: nothing straight-through or detached
  bool anchored = false;     // what a token sees depends on its place: packed texts see less
  bool any_width = true;     // on a GPU heads wider than kWidestTiledOnCuda too
  bool strict = true;        // causal to the bit; false: what is seen follows from later tokens too
  bool decay = false;        // model.position: alibi as decay, which only causal forms have
  bool scheduled = false;    // what it does follows from the length of the run
  bool mixes_heads = false;  // what a head puts out depends on other heads' queries and keys
  bool unordered = false;    // without positions the order of tokens means nothing
  std::string_view note = {};  // the reason behind a refusal
};

// A projection of the block's input that a method asks for.
struct ProjectionSpec {
  std::string_view name;  // "q", "k", "v", "q_global", ...
  int heads = 1, width = 0;
  bool rope = false, qk_norm = false;
};

// Analytic cost of one layer's operator for one sample. FLOPs: multiply-add = 2. Useful: what the
// mathematics asks for under causality, whatever the kernel; executed: whole tiles, products
// repeated in backward. Bytes: of 16-bit tokens and f32 statistics, each read or written once.
struct Cost {
  double useful_forward = 0, useful_backward = 0;
  double executed_forward = 0, executed_backward = 0;
  double bytes_forward = 0, bytes_backward = 0;
};
inline Cost& operator+=(Cost& to, const Cost& more) {
  to.useful_forward += more.useful_forward;
  to.useful_backward += more.useful_backward;
  to.executed_forward += more.executed_forward;
  to.executed_backward += more.executed_backward;
  to.bytes_forward += more.bytes_forward;
  to.bytes_backward += more.bytes_backward;
  return to;
}

// AttentionSpec::linear of methods that are linear in every form.
inline bool always_linear(const AttentionConfig& /*config*/, const config::Node& /*options*/) {
  return true;
}

struct AttentionSpec {
  std::string_view name;
  std::string_view alias = {};  // a second name, or ""
  std::string_view summary;     // one sentence
  std::string_view source;      // paper and equations
  std::span<const config::Option> options;
  Capabilities caps;
  // What completed options leave of caps; null: all.
  Capabilities (*caps_with)(Capabilities caps, const config::Node& options) = nullptr;
  // Null: q, k, v of the standard widths.
  std::vector<ProjectionSpec> (*projections)(const AttentionConfig&, const config::Node&) = nullptr;
  // `options` was validated and completed. Throws ConfigError with the reason for what the method
  // refuses.
  std::unique_ptr<Attention> (*make)(const AttentionConfig&, const config::Node& options) = nullptr;
  Cost (*cost)(const AttentionConfig&, const config::Node&, std::int64_t queries,
               std::int64_t keys) = nullptr;
  // Whether time and memory grow as the number of tokens; null: never.
  bool (*linear)(const AttentionConfig&, const config::Node&) = nullptr;
  // Where any_length is false: the most tokens that it takes. Null: model.block_size.
  std::int64_t (*longest)(const AttentionConfig&, const config::Node&) = nullptr;
  // The method as its source defines it, over all pairs of tokens in plain loops (definition.h):
  // o [B,H,N,Dv] for f64 tokens on the CPU, with the parameters and buffers of `method`. May be
  // null where exact or dense_when says what it equals.
  Tensor (*definition)(Attention& method, const AttentionConfig&, const config::Node&,
                       const AttentionInput&) = nullptr;
  // Options that make it equal dense, or empty: YAML in which ${qk_dim}, ${v_dim} and ${max_len}
  // stand for the configuration's.
  std::string_view dense_when = {};
  // Options for the checks, at lengths up to 160, where the defaults do not do: YAML.
  std::string_view example = {};
  // Where 200 steps of configs/zoo/gpt.yaml end more than 1.10 times above standard in bits per
  // byte: how far, and what in the mathematics makes for it. Ends a sentence of docs/attention.md.
  std::string_view small_run = {};
};

}  // namespace fovea::attention
