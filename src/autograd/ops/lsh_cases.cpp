#include <algorithm>
#include <memory>

#include "autograd/op_registry.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/low_rank.h"
#include "autograd/ops/lsh.h"
#include "autograd/ops/round_attention.h"
#include "core/random.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::real;

constexpr std::int64_t kRounds = 2;

Tensor rotations(Ctx& ctx, std::int64_t width, std::int64_t columns) {
  const NamedStream stream(0, "op case rotations");
  std::vector<double> values(static_cast<std::size_t>(kRounds * width * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = stream.normal(i);
  const Tensor host = Tensor::from(values, {kRounds, width, columns}, DType::f32);
  return ctx.device.is_cpu() ? host : host.to(ctx.device, ctx.stream);
}

// Attention of q to itself and v among tokens that hash alike, two rounds merged. Inputs q, v
// [B,1,N,*] and perhaps a mask.
std::vector<Var> attended(Ctx& ctx, Inputs in, LshPart part) {
  const Tensor valid = in.size() > 2 ? in[2].value() : Tensor{};
  const std::int64_t batch = in[0].size(0), tokens = in[0].size(2);
  const std::int64_t columns = (tokens + 2 * part.bucket_size - 1) / (2 * part.bucket_size);
  const LshTables tables = hash_tokens(ctx, in[0].value(), rotations(ctx, in[0].size(3), columns),
                                       valid, part.bucket_size);
  std::vector<AttentionResult> parts;
  for (std::int64_t p = 0; p < (part.any_wraps ? 2 : 1) * kRounds; ++p) {
    part.round = part.any_wraps ? p / 2 : p;
    part.wraps = part.any_wraps && p % 2 == 1;
    const Tensor queries = part.windowed ? Tensor{} : tables.round_order(part.round),
                 keys = part.wraps ? tables.round_order((part.round + 1) % kRounds) : queries;
    const auto plan = std::make_shared<AttentionPlan>(PlanShape{batch, 1, 1, tokens, tokens, false},
                                                      std::vector{tables.rule(ctx, part)},
                                                      ctx.device, ctx.stream, queries, keys);
    plan->build(ctx);
    AttentionMask mask;
    mask.key_valid = valid;
    mask.plan = plan;
    parts.push_back(flash_attention(ctx, in[0], in[0], in[1], {}, mask));
  }
  return {merge_attention(ctx, parts, in[1], valid, -1.0).o};
}

// The same by round_attention, of any number of heads: chunks in the order of each round.
std::vector<Var> in_rounds(Ctx& ctx, Inputs in, bool causal) {
  const Tensor valid = in.size() > 2 ? in[2].value() : Tensor{};
  const std::int64_t batch = in[0].size(0), heads = in[0].size(1), tokens = in[0].size(2),
                     samples = kRounds * batch;
  PlanRule rule;
  rule.rule.in_slots = rule.rule.hides_own = true;
  const std::int64_t block = std::min<std::int64_t>(tokens, 24),
                     columns = (tokens + 2 * block - 1) / (2 * block);
  rule.rule.block = static_cast<std::int32_t>(block);
  rule.rule.block_left = 1;
  const LshTables tables =
      hash_tokens(ctx, in[0].value(), rotations(ctx, in[0].size(3), columns), valid, block);
  const Tensor orders = tables.order.reshape({samples, heads, tokens});
  AttentionRounds rounds;
  const auto plan =
      std::make_shared<AttentionPlan>(PlanShape{samples, heads, heads, tokens, tokens, causal},
                                      std::vector{rule}, ctx.device, ctx.stream, orders, orders);
  plan->build(ctx);
  rounds.count = kRounds;
  rounds.alone_lse = -1.0;
  rounds.plan = plan;
  AttentionMask mask;
  mask.causal = causal;
  mask.key_valid = valid;
  return {round_attention(ctx, in[0], in[0], in[1], mask, rounds).o};
}

OpCase rounds_case(std::string name, std::vector<CaseInput> inputs, bool causal) {
  return {.name = std::move(name), .inputs = std::move(inputs), .run = [causal](Ctx& c, Inputs in) {
            return in_rounds(c, in, causal);
          }};
}

OpCase lsh_case(std::string name, std::vector<CaseInput> inputs, const LshPart& part) {
  return {.name = std::move(name), .inputs = std::move(inputs), .run = [part](Ctx& c, Inputs in) {
            return attended(c, in, part);
          }};
}

std::vector<OpCase> lsh_cases() {
  const Shape q{2, 1, 11, 4}, v{2, 1, 11, 3};
  const CaseInput valid{{2, 11}, Kind::mask};
  return {
      lsh_case("chunks", {real(q), real(v)}, {.bucket_size = 3}),
      lsh_case("chunks, padding, once", {real(q), real(v), valid},
               {.bucket_size = 3, .once = true}),
      lsh_case("own buckets alone, padding", {real(q), real(v), valid},
               {.bucket_size = 4, .own_bucket = true}),
      lsh_case("wrapping", {real(q), real(v)}, {.bucket_size = 3, .any_wraps = true}),
      lsh_case("windows, padding", {real(q), real(v), valid}, {.bucket_size = 2, .windowed = true}),
      lsh_case("several tiles", {real({1, 1, 200, 8}), real({1, 1, 200, 8})}, {.bucket_size = 24}),
  };
}

std::vector<OpCase> rounds_cases() {
  const CaseInput q = real({2, 2, 11, 4}), v = real({2, 2, 11, 3}), valid{{2, 11}, Kind::mask};
  return {
      rounds_case("causal", {q, v}, true),
      rounds_case("padding", {q, v, valid}, false),
      rounds_case("one sample", {real({1, 2, 11, 4}), real({1, 2, 11, 4})}, true),
      rounds_case("one sample, two tiles", {real({1, 2, 99, 8}), real({1, 2, 99, 8})}, true),
  };
}

}  // namespace

OpList lsh_ops();
OpList lsh_ops() {
  return {{.name = "hash_tokens",
           .summary = "Buckets of tokens, their order, and attention among those that hash alike.",
           .header = "src/autograd/ops/lsh.h",
           .autograd = "src/autograd/ops/lsh.cpp",
           .kernels = "src/kernels/lsh.h",
           .cpu = "src/kernels/cpu/lsh.cpp",
           .cuda = "src/kernels/cuda/lsh.cu",
           .cases = lsh_cases},
          {.name = "round_attention",
           .summary = "Attention in several rounds of tiles, merged.",
           .header = "src/autograd/ops/round_attention.h",
           .autograd = "src/autograd/ops/round_attention.cpp",
           .kernels = "src/kernels/merge.h",
           .cpu = "src/kernels/cpu/merge.cpp",
           .cuda = "src/kernels/cuda/merge.cu",
           .cases = rounds_cases}};
}

}  // namespace fovea
