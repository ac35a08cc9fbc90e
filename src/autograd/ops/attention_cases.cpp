#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/elementwise.h"

namespace fovea {

std::vector<OpCase> attention_plan_cases();  // attention_plan_cases.cpp

namespace {

using Kind = CaseInput::Kind;
using Inputs = std::span<const Var>;
using Op = AttentionResult (*)(Ctx&, const Var&, const Var&, const Var&, const Var&,
                               const AttentionMask&);

struct Sizes {
  std::int64_t b = 2, h = 2, hk = 2, n = 5, m = 5, d = 4, dv = 4;
};

// What a case adds to q, k and v: inputs from index 3 on, in this order.
struct Extras {
  bool key_valid = false, query_valid = false, segments = false, alibi = false;
  Shape bias = {};  // rank 0: none
  bool bias_is_parameter = false;
  bool lse = true;  // also an output; -inf rows cannot be compared by differences
};

std::vector<CaseInput> inputs_of(const Sizes& s, const Extras& extras) {
  std::vector<CaseInput> inputs = {
      {{s.b, s.h, s.n, s.d}}, {{s.b, s.hk, s.m, s.d}}, {{s.b, s.hk, s.m, s.dv}}};
  if (extras.key_valid) inputs.push_back({{s.b, s.m}, Kind::mask});
  if (extras.query_valid) inputs.push_back({{s.b, s.n}, Kind::mask});
  if (extras.segments) inputs.push_back({{s.b, s.n}, Kind::ids, 0, 2});
  if (extras.bias.rank() != 0) {
    inputs.push_back({extras.bias, extras.bias_is_parameter ? Kind::parameter : Kind::real});
  }
  return inputs;
}

Tensor slopes(Ctx& ctx, std::int64_t heads) {
  std::vector<double> values;
  for (std::int64_t h = 0; h < heads; ++h)
    values.push_back(1.0 / static_cast<double>(2 << h));
  const Tensor host = Tensor::from(values, {heads}, acc_of(ctx.compute()));
  return ctx.device.is_cpu() ? host : host.to(ctx.device, ctx.stream);
}

std::vector<Var> run(Op op, Ctx& ctx, Inputs in, AttentionMask mask, const Extras& extras) {
  std::size_t next = 3;
  if (extras.key_valid) mask.key_valid = in[next++].value();
  if (extras.query_valid) mask.query_valid = in[next++].value();
  if (extras.segments) mask.query_segments = in[next++].value();
  const Var bias = extras.bias.rank() != 0 ? in[next] : Var();
  if (extras.alibi) mask.alibi_slopes = slopes(ctx, in[0].size(1));
  mask.dropout_key = ctx.key("case");
  const AttentionResult r = op(ctx, in[0], in[1], in[2], bias, mask);
  return extras.lse ? std::vector{r.o, r.lse} : std::vector{r.o};
}

OpCase make_case(Op op, Op composition, std::string name, const Sizes& s, const AttentionMask& mask,
                 const Extras& extras = {}) {
  OpCase out{.name = std::move(name), .inputs = inputs_of(s, extras), .run = nullptr};
  out.run = [=](Ctx& c, Inputs in) { return run(op, c, in, mask, extras); };
  if (composition != nullptr) {
    out.composition = [=](Ctx& c, Inputs in) { return run(composition, c, in, mask, extras); };
  }
  out.flops = 2 * static_cast<double>(s.b * s.h * s.n * s.m * (s.d + s.dv));
  return out;
}

std::vector<OpCase> cases_of(Op op, Op composition) {
  const AttentionMask plain, causal{.causal = true};
  const auto of = [&](std::string name, const Sizes& s, const AttentionMask& mask,
                      const Extras& extras = {}) {
    return make_case(op, composition, std::move(name), s, mask, extras);
  };
  std::vector<OpCase> out = {
      of("bidirectional", {}, plain),
      of("causal, grouped heads, narrow values", {.h = 4, .d = 6, .dv = 3}, causal),
      of("one token", {.n = 1, .m = 1}, causal),
      of("a query against a longer past", {.n = 2, .m = 7}, causal),
      of("more queries than keys", {.n = 6, .m = 3}, causal, {.lse = false}),
      of("a scale of its own", {}, {.scale = 0.7}),
      of("a cap", {.h = 4, .m = 7, .dv = 3}, {.causal = true, .softcap = 0.6}),
      of("a cap, a bias, slopes and dropout", {},
         {.causal = true, .scale = 2, .softcap = 1.5, .dropout = 0.25},
         {.alibi = true, .bias = {1, 2, 5, 5}}),
      of("padding", {}, causal, {.key_valid = true, .lse = false}),
      of("cross-attention with padding on both sides", {.n = 3, .m = 6}, plain,
         {.key_valid = true, .query_valid = true, .lse = false}),
      of("segments", {}, causal, {.segments = true}),
      of("slopes", {.n = 3}, causal, {.alibi = true}),
      of("dropout", {}, {.dropout = 0.25}),
      of("a bias for each head", {}, causal, {.bias = {1, 2, 5, 5}}),
      of("a bias for each sample", {}, plain, {.bias = {2, 1, 5, 5}}),
      of("a trained bias", {}, plain, {.bias = {1, 1, 5, 5}, .bias_is_parameter = true}),
  };
  if (composition != nullptr) {
    out.push_back(
        of("several tiles", {.b = 1, .hk = 1, .n = 70, .m = 130, .d = 16, .dv = 8}, causal));
  }
  return out;
}

// The gradient of q as it lies in a packed projection: strided in and strided back.
OpCase packed_case() {
  OpCase out{.name = "views of a packed projection", .inputs = {{{2, 5, 24}}}, .run = nullptr};
  const auto with = [](Op op) {
    return [op](Ctx& c, Inputs in) {
      const std::vector<Var> parts = split_heads(c, in[0], {{2, 4}, {2, 4}, {2, 4}});
      const AttentionResult r = op(c, parts[0], parts[1], parts[2], Var(), {.causal = true});
      return std::vector{merge_heads(c, r.o)};
    };
  };
  out.run = with(flash_attention);
  out.composition = with(reference_attention);
  return out;
}

std::vector<OpCase> flash_cases() {
  std::vector<OpCase> out = cases_of(flash_attention, reference_attention);
  out.push_back(packed_case());
  for (OpCase& plan : attention_plan_cases())
    out.push_back(std::move(plan));
  return out;
}

std::vector<OpCase> reference_cases() {
  return cases_of(reference_attention, nullptr);
}

}  // namespace

OpList attention_ops() {
  return {
      {.name = "flash_attention",
       .summary = "Exact attention in tiles with an online softmax.",
       .header = "src/autograd/ops/attention.h",
       .autograd = "src/autograd/ops/attention.cpp",
       .kernels = "src/kernels/flash.h",
       .cpu = "src/kernels/cpu/flash.cpp",
       .cuda = "src/kernels/cuda/flash.cu",
       .cases = flash_cases},
      {.name = "reference_attention",
       .summary = "Exact attention that stores its probabilities: the oracle.",
       .header = "src/autograd/ops/attention.h",
       .autograd = "src/autograd/ops/attention.cpp",
       .kernels = "src/kernels/attention_reference.h",
       .cpu = "src/kernels/cpu/attention_reference.cpp",
       .cuda = "src/kernels/cuda/attention_reference.cu",
       .cases = reference_cases},
  };
}

}  // namespace fovea
