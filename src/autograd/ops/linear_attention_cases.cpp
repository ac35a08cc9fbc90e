#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear_attention.h"

namespace fovea {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;

namespace {

// `run` without the kernels that do several steps at once.
template <class Run>
auto unfused(Run run) {
  return [run](Ctx& c, Inputs in) {
    const bool fuse = std::exchange(c.fuse, false);
    auto result = run(c, in);
    c.fuse = fuse;
    return result;
  };
}

struct Sizes {
  std::int64_t b = 2, h = 2, hb = 2, hk = 2, n = 17, m = 17, d = 4, dv = 3;
  std::int64_t states = 2;  // of decay and weight
};

// What a case adds behind its queries, keys and values, in this order.
struct Extras {
  bool key_valid = false, query_valid = false, segments = false, decay = false, weight = false;
};

void add_inputs(std::vector<CaseInput>& to, const Sizes& s, const Extras& extras) {
  if (extras.key_valid) to.push_back({{s.b, s.m}, Kind::mask});
  if (extras.query_valid) to.push_back({{s.b, s.n}, Kind::mask});
  if (extras.segments) to.push_back({{s.b, s.n}, Kind::ids, 0, 2});
  if (extras.decay) to.push_back({{s.b, s.states, s.m}, Kind::real, -2, 0});
  if (extras.weight) to.push_back({{s.b, s.states, s.m}, Kind::real, -2, 1});
}

struct Taken {
  LinearMask mask;
  KeyWeights weights;
};

// Ids of two values become runs: a token's segment counts the changes before it.
Tensor as_runs(Ctx& ctx, const Tensor& drawn_ids) {
  if (ctx.device.is_meta()) return drawn_ids;
  const Tensor ids = drawn_ids.to(kCpu, ctx.stream);
  std::vector<double> values = ids.values();
  const auto n = static_cast<std::size_t>(ids.size(1));
  for (std::size_t row = 0; row < values.size(); row += n) {
    const std::vector<double> drawn(values.begin() + static_cast<std::ptrdiff_t>(row),
                                    values.begin() + static_cast<std::ptrdiff_t>(row + n));
    values[row] = 0;
    for (std::size_t i = 1; i < n; ++i)
      values[row + i] = values[row + i - 1] + (drawn[i] != drawn[i - 1] ? 1 : 0);
  }
  return Tensor::from(values, ids.shape(), DType::i32).to(ctx.device, ctx.stream);
}

Taken take_inputs(Ctx& ctx, Inputs in, LinearMask mask, const Extras& extras) {
  Taken out{std::move(mask), {}};
  std::size_t next = 3;
  if (extras.key_valid) out.mask.key_valid = in[next++].value();
  if (extras.query_valid) out.mask.query_valid = in[next++].value();
  if (extras.segments) out.mask.query_segments = as_runs(ctx, in[next++].value());
  const DType acc = acc_of(ctx.compute());
  if (extras.decay) out.weights.decay = cast(ctx, in[next++], acc);
  if (extras.weight) out.weights.weight = cast(ctx, in[next++], acc);
  return out;
}

OpCase core_case(std::string name, const Sizes& s, const LinearMask& mask,
                 const Extras& extras = {}) {
  OpCase out{.name = std::move(name), .inputs = {}, .run = nullptr};
  // Features are positive, as most maps make them: denominators stay away from zero.
  out.inputs = {{{s.b, s.h, s.n, s.d}, Kind::real, 0.01, 2},
                {{s.b, s.hb, s.m, s.d}, Kind::real, 0.01, 2},
                real({s.b, s.hk, s.m, s.dv})};
  add_inputs(out.inputs, s, extras);
  out.run = [mask, extras](Ctx& c, Inputs in) {
    const Taken more = take_inputs(c, in, mask, extras);
    return std::vector{linear_attention(c, in[0], in[1], in[2], more.weights, more.mask).o};
  };
  out.flops = 2 * static_cast<double>(s.b * s.d * (s.dv + 1) * (s.h * s.n + s.hb * s.m));
  return out;
}

std::vector<OpCase> core_cases() {
  const LinearMask full, causal{.causal = true}, chunks{.causal = true, .chunk = 5};
  return {
      core_case("bidirectional", {}, full),
      core_case("causal", {}, causal),
      core_case("causal, short chunks", {}, chunks),
      core_case("causal, grouped heads", {.h = 4, .d = 6}, chunks),
      core_case("key heads that share values", {.h = 4, .hb = 4, .d = 3}, chunks),
      core_case("bidirectional, key heads that share values", {.h = 4, .hb = 2, .hk = 1}, full),
      core_case("one token", {.n = 1, .m = 1},
                {.causal = true, .normaliser = Normaliser::add, .floor = 3}),
      core_case("cross-attention", {.n = 3, .m = 21}, full),
      core_case("padding", {}, chunks, {.key_valid = true}),
      core_case("padding on both sides of cross-attention", {.n = 3, .m = 21}, full,
                {.key_valid = true, .query_valid = true}),
      core_case("segments", {}, chunks, {.segments = true}),
      core_case("bidirectional segments with padding", {}, {.chunk = 5},
                {.key_valid = true, .segments = true}),
      core_case("a floor that holds some rows", {}, {.causal = true, .floor = 20}),
      core_case("an added floor", {}, {.normaliser = Normaliser::add, .floor = 3}),
      core_case("divided by the square root of the count", {}, {.normaliser = Normaliser::sqrt_n},
                {.key_valid = true}),
      core_case("weights", {}, full, {.weight = true}),
      core_case("decay and weights", {}, chunks, {.decay = true, .weight = true}),
      core_case("decay under an added floor, a state for each query head",
                {.h = 4, .hb = 1, .hk = 1, .states = 4},
                {.causal = true, .normaliser = Normaliser::add, .floor = 3, .chunk = 5},
                {.decay = true, .weight = true}),
      core_case("decay with padding and segments", {.d = 8}, chunks,
                {.key_valid = true, .segments = true, .decay = true, .weight = true}),
      core_case("decay under a floor", {}, {.causal = true, .floor = 8, .chunk = 5},
                {.decay = true}),
      core_case("several chunks", {.b = 1, .n = 70, .m = 70, .d = 16, .dv = 8},
                {.causal = true, .chunk = 32}),
  };
}

// q, k, v, then extras, then w of the map.
OpCase fused_case(std::string name, const Sizes& s, const Features& query_map,
                  const Features& key_map, const LinearMask& mask, const Extras& extras = {}) {
  OpCase out{.name = std::move(name), .inputs = {}, .run = nullptr};
  out.inputs = {real({s.b, s.h, s.n, s.d}), real({s.b, s.hk, s.m, s.d}),
                real({s.b, s.hk, s.m, s.dv})};
  add_inputs(out.inputs, s, extras);
  const bool random = query_map.exponential();
  if (random) {
    out.inputs.push_back({{7, s.d}, Kind::real, -1.5, 1.5});
    out.inputs.back().differentiable = false;
  }
  const auto run = [=](Ctx& c, Inputs in) {
    const Taken more = take_inputs(c, in, mask, extras);
    Features q = query_map, k = key_map;
    if (random) q.w = k.w = cast(c, in.back().detached(), DType::f32).value();
    const AttentionResult r =
        feature_attention(c, in[0], in[1], in[2], q, k, more.weights, more.mask);
    return mask.lse ? std::vector{r.o, r.lse} : std::vector{r.o};
  };
  out.run = run;
  out.composition = unfused(run);
  return out;
}

// RFA: sigma is a parameter that both maps read, and the gate makes decay and weight.
OpCase gated_case() {
  OpCase out{.name = "a gate and rotating features",
             .inputs = {real({2, 4, 17, 4}),
                        real({2, 2, 17, 4}),
                        real({2, 2, 17, 3}),
                        real({2, 17, 4}, 2),
                        {{5, 4}, Kind::real, -1, 1},
                        parameter({4, 4})},
             .run = nullptr};
  out.inputs[4].differentiable = false;
  const auto run = [](Ctx& c, Inputs in) {
    Features map{.kind = FeatureKind::fourier};
    map.w = cast(c, in[4].detached(), DType::f32).value();
    map.sigma = in[5];
    const LinearMask mask{.causal = true, .floor = 0.05, .chunk = 4};
    return std::vector{
        feature_attention(c, in[0], in[1], in[2], map, map, gate_weights(c, in[3]), mask).o};
  };
  out.run = run;
  out.composition = unfused(run);
  return out;
}

std::vector<OpCase> fused_cases() {
  const Features softmax{.kind = FeatureKind::softmax, .scale = 0.7};
  const Features pair{.kind = FeatureKind::softmax_pair, .scale = 0.7};
  const Features elu{.kind = FeatureKind::elu};
  const Features cosine{.kind = FeatureKind::cosine, .reference = 32};
  const LinearMask full, causal{.causal = true, .chunk = 4};

  return {
      fused_case("softmax features", {.h = 4}, softmax, softmax, full),
      fused_case("softmax features, causal", {}, softmax, softmax, causal),
      fused_case("softmax features, causal with padding and segments", {}, softmax, softmax, causal,
                 {.key_valid = true, .segments = true}),
      fused_case("pairs, causal, grouped heads", {.h = 4}, pair, pair, causal),
      fused_case("pairs, causal with the logarithm of their sums", {.h = 4}, pair, pair,
                 {.causal = true, .floor = 1e-30, .chunk = 5, .lse = true}),
      fused_case("elu", {.n = 3, .m = 21}, elu, elu, {.normaliser = Normaliser::add}),
      fused_case("cosine, causal with padding", {}, cosine, cosine,
                 {.causal = true, .floor = 0.5, .chunk = 4}, {.key_valid = true}),
      gated_case(),
  };
}

std::vector<OpCase> gate_cases() {
  const auto both = [](const KeyWeights& w) { return std::vector{w.decay, w.weight}; };
  return {
      {.name = "gates",
       .inputs = {real({2, 5, 3}, 4)},
       .run = [both](Ctx& c, Inputs in) { return both(gate_weights(c, in[0])); }},
      {.name = "gates with padding",
       .inputs = {real({2, 5, 3}, 4), {{2, 5}, Kind::mask}},
       .run = [both](Ctx& c, Inputs in) { return both(gate_weights(c, in[0], in[1].value())); }},
      {.name = "only the decay is used",
       .inputs = {real({1, 4, 2}, 4)},
       .run = [](Ctx& c, Inputs in) { return std::vector{gate_weights(c, in[0]).decay}; }},
  };
}

}  // namespace

OpList linear_attention_ops();
OpList linear_attention_ops() {
  const auto spec = [](std::string_view name, std::string_view summary,
                       std::vector<OpCase> (*cases)()) {
    return OpSpec{name,
                  summary,
                  "src/autograd/ops/linear_attention.h",
                  "src/autograd/ops/linear_attention.cpp",
                  "src/kernels/linear_attention.h",
                  "src/kernels/cpu/linear_attention.cpp",
                  "src/kernels/cuda/linear_attention.cu",
                  cases};
  };
  return {
      spec("feature_attention", "Kernel attention whose features are made on the way.",
           fused_cases),
      spec("gate_weights", "RFA's gate as decay and weights of keys.", gate_cases),
      spec("linear_attention", "Kernel attention by running or total sums of features.",
           core_cases),
  };
}

}  // namespace fovea
