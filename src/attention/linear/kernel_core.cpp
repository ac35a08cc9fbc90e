#include "attention/linear/kernel_core.h"

#include <algorithm>
#include <utility>

#include "attention/alibi.h"
#include "attention/real_tokens.h"

namespace fovea::attention {

KernelCore::KernelCore(const AttentionConfig& config, Normaliser normaliser, double floor,
                       std::int64_t chunk)
    : config_(config) {
  mask_.causal = causal();
  mask_.normaliser = normaliser;
  mask_.floor = floor;
  mask_.chunk = chunk;
}

std::int64_t KernelCore::states() const {
  return config_.position == Position::alibi && causal() ? config_.n_head : config_.n_kv_head;
}

const Tensor& KernelCore::slopes(Ctx& ctx) {
  const DType acc = acc_of(ctx.compute());
  if (config_.position != Position::alibi || !causal()) return slopes_;
  if (!slopes_.defined() || slopes_.dtype() != acc || !(slopes_.device() == ctx.device)) {
    constexpr double kLog2e = 1.4426950408889634;
    std::vector<double> values = alibi_slopes(config_.n_head);
    for (double& value : values)
      value *= kLog2e;
    slopes_ = Tensor::from(values, {config_.n_head}, acc).to(ctx.device, ctx.stream);
  }
  return slopes_;
}

Var KernelCore::run(Ctx& ctx, const AttentionInput& in, const LinearMask& mask,
                    const Features& query_map, const Features& key_map, KeyWeights weights,
                    const LinearState& state) {
  const Tensor& fall = slopes(ctx);
  if (key_map.exponential()) {
    return feature_attention(ctx, in.q, in.k, in.v, query_map, key_map, {}, mask, fall, state).o;
  }
  if (fall.defined()) {
    const Tensor flat = ctx.zeros({in.k.size(0), in.k.size(1), in.k.size(2)}, fall.dtype());
    weights = KeyWeights::relative(ctx, flat, fall, mask, state.top);
  }
  return feature_attention(ctx, in.q, in.k, in.v, query_map, key_map, weights, mask, {}, state).o;
}

Var KernelCore::attend(Ctx& ctx, const AttentionInput& in, const Features& query_map,
                       const Features& key_map, const KeyWeights& weights) {
  LinearMask mask = mask_;
  mask.key_valid = in.key_valid;
  mask.query_valid = in.query_valid;
  mask.query_segments = in.segments;
  mask.key_segments = in.key_segments;
  return run(ctx, in, mask, query_map, key_map, weights, {});
}

std::unique_ptr<DecodeState> KernelCore::start(Ctx& ctx, int batch, int max_length,
                                               std::int64_t features, std::int64_t states) const {
  if (!causal()) return nullptr;
  return std::make_unique<RunningState>(ctx, batch, states, features, config_.v_dim, max_length);
}

Var KernelCore::step(Ctx& ctx, RunningState& state, const AttentionInput& in,
                     const Features& query_map, const Features& key_map,
                     const KeyWeights& weights) {
  state.grow(real_tokens(ctx, in.key_valid, in.k.size(0), in.k.size(2)));
  LinearMask mask = mask_;
  mask.key_valid = in.key_valid;
  return run(ctx, in, mask, query_map, key_map, weights, state.sums());
}

Cost kernel_cost(const AttentionConfig& config, const KernelSize& size, std::int64_t chunk,
                 std::int64_t queries, std::int64_t keys) {
  const bool causal = is_causal(config);
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  const double n = static_cast<double>(queries), m = static_cast<double>(keys);
  const double maps = 2 * (h * n + size.key_map_heads * m) * size.directions * d;
  const double into = 2 * size.states * m * size.features * (dv + 1);  // states
  const double out_of = 2 * h * n * size.features * (dv + 1);
  const double pairs = causal ? 2 * h * n * static_cast<double>(std::min(chunk, queries)) : 0;
  Cost cost;
  cost.useful_forward = maps + into + out_of;
  cost.useful_backward = maps + 2 * (into + out_of);
  cost.executed_forward = cost.useful_forward + pairs * (size.features + dv + 1);
  // Features, states and pairs are made again.
  cost.executed_backward =
      2 * maps + 3 * into + 2 * out_of + pairs * (3 * size.features + 2 * (dv + 1));
  const double tokens = h * n * (d + dv) + hk * m * (d + dv);
  const double features = size.features * (h * n + size.key_map_heads * m);
  cost.bytes_forward = 2 * tokens + 4 * features + 4 * h * n;
  cost.bytes_backward = 4 * tokens + 12 * features + 2 * h * n * dv + 4 * h * n;
  return cost;
}

}  // namespace fovea::attention
