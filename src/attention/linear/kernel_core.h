#pragma once
// What the kernel methods share around their feature maps: masks, ALiBi as decay, decoding, cost.

#include "attention/linear/running_state.h"

namespace fovea::attention {

// What a method passes to KernelCore as `chunk`.
constexpr config::Option kChunkOption = {
    "chunk", config::Type::integer, "128", "[1, 65536]",
    "Tokens that are multiplied pair by pair between two states."};

// Random directions, a buffer, where the context computes.
inline Tensor directions_for(Ctx& ctx, const Tensor& w) {
  return w.device() == ctx.device || ctx.device.is_meta() ? w : w.to(ctx.device, ctx.stream);
}

class KernelCore {
 public:
  KernelCore(const AttentionConfig& config, Normaliser normaliser, double floor,
             std::int64_t chunk);

  // Kernel attention of in.q, in.k and in.v. `weights` are the method's own, of maps that are not
  // exponential.
  Var attend(Ctx& ctx, const AttentionInput& in, const Features& query_map, const Features& key_map,
             const KeyWeights& weights = {});

  // A state of `features` sums for causal self-attention, else null.
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length, std::int64_t features,
                                     std::int64_t states) const;
  // The new tokens of `in` behind those of `state`, which grows by them.
  Var step(Ctx& ctx, RunningState& state, const AttentionInput& in, const Features& query_map,
           const Features& key_map, const KeyWeights& weights = {});

  bool causal() const { return is_causal(config_); }
  // States of a sample: one for each key/value head, or for each query head where ALiBi's slopes
  // differ.
  std::int64_t states() const;

 private:
  Var run(Ctx& ctx, const AttentionInput& in, const LinearMask& mask, const Features& query_map,
          const Features& key_map, KeyWeights weights, const LinearState& state);
  const Tensor& slopes(Ctx& ctx);

  AttentionConfig config_;
  LinearMask mask_;
  Tensor slopes_;  // of ALiBi in units of log2, made once for each dtype and device
};

// The cost of one layer: `features` a head, made by a product with `directions` vectors (0: none)
// for `key_map_heads` heads of keys, and summed in `states` states.
struct KernelSize {
  double features = 0, directions = 0, key_map_heads = 0, states = 0;
};
Cost kernel_cost(const AttentionConfig& config, const KernelSize& size, std::int64_t chunk,
                 std::int64_t queries, std::int64_t keys);

}  // namespace fovea::attention
