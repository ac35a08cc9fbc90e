#include <memory>

#include "autograd/op_registry.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/causal_product.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/low_rank.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::mask;
using cases::parameter;
using cases::real;

using Compress = Var (*)(Ctx&, const Var&, const Var&, const Tensor&);

template <Compress compress>
OpCase compress_case(const std::string& name, const std::vector<CaseInput>& inputs) {
  return {.name = name, .inputs = inputs, .run = [](Ctx& c, Inputs in) {
            return std::vector{compress(c, in[0], in[1], in.size() > 2 ? in[2].value() : Tensor{})};
          }};
}

std::vector<OpCase> compress_tokens_cases() {
  const auto of = compress_case<compress_tokens>;
  return {
      of("one map for all heads", {real({2, 2, 7, 4}), parameter({3, 9})}),
      of("one map, padding", {real({2, 3, 6, 4}), parameter({3, 6}), mask({2, 6})}),
      of("a map for each head, padding", {real({2, 2, 6, 3}), parameter({2, 3, 8}), mask({2, 6})}),
      of("a computed map, one token", {real({1, 2, 1, 4}), real({2, 5})}),
      {.name = "views of a packed projection",
       .inputs = {real({2, 5, 16}), parameter({3, 5})},
       .run =
           [](Ctx& c, Inputs in) {
             const std::vector<Var> parts = split_heads(c, in[0], {{2, 4}, {2, 4}});
             return std::vector{compress_tokens(c, parts[1], in[1], {})};
           }},
  };
}

std::vector<OpCase> compress_blocks_cases() {
  const auto of = compress_case<compress_blocks>;
  return {
      of("three blocks and a rest", {real({2, 2, 11, 4}), parameter({2, 3})}),
      of("a map for each head, padding", {real({2, 2, 8, 3}), parameter({2, 3, 4}), mask({2, 8})}),
      of("one block", {real({1, 2, 4, 4}), parameter({2, 4})}),
      of("a computed map", {real({1, 2, 6, 4}), real({2, 2})}),
  };
}

std::vector<OpCase> renormalise_cases() {
  const auto of = [](std::string name, std::vector<CaseInput> inputs, std::int64_t tokens) {
    return OpCase{
        .name = std::move(name), .inputs = std::move(inputs), .run = [tokens](Ctx& c, Inputs in) {
          const Tensor valid = in.size() > 2 ? in[2].value() : Tensor{};
          return std::vector{renormalise_slots(c, in[0], in[1], valid, tokens)};
        }};
  };
  return {
      of("padding", {real({2, 2, 3, 4}), parameter({3, 8}), mask({2, 6})}, 6),
      of("a map for each head", {real({2, 2, 3, 4}), parameter({2, 3, 8}), mask({2, 7})}, 7),
      of("fewer tokens than columns", {real({2, 2, 3, 4}), real({3, 8})}, 5),
  };
}

std::vector<Var> merged(Ctx& c, Inputs in) {
  std::vector<AttentionResult> parts;
  for (std::size_t p = 0; p + 1 < in.size(); p += 2)
    parts.push_back({in[p], cast(c, in[p + 1], acc_of(in[p].dtype()))});
  const AttentionResult r = merge_attention(c, parts);
  return {r.o, r.lse};
}

// Causal attention without the own token: the first has nothing to see, and takes its value.
std::vector<Var> merged_alone(Ctx& c, Inputs in) {
  PlanRule rule;
  rule.rule.hides_own = true;
  const auto plan = std::make_shared<AttentionPlan>(PlanShape{2, 2, 2, 4, 4, true},
                                                    std::vector{rule}, c.device, c.stream);
  plan->build(c);
  AttentionMask of{.causal = true};
  of.plan = plan;
  const AttentionResult part = flash_attention(c, in[0], in[1], in[2], {}, of);
  const AttentionResult r = merge_attention(c, {part, part}, in[2], {}, -3.0);
  return {r.o, r.lse};
}

std::vector<OpCase> merge_cases() {
  const Shape o{2, 2, 5, 4}, lse{2, 2, 5};
  return {
      {.name = "two parts", .inputs = {real(o), real(lse), real(o), real(lse)}, .run = merged},
      {.name = "three parts, odd width",
       .inputs = {real({1, 3, 4, 5}), real({1, 3, 4}, 4), real({1, 3, 4, 5}), real({1, 3, 4}, 4),
                  real({1, 3, 4, 5}), real({1, 3, 4}, 4)},
       .run = merged},
      {.name = "one part", .inputs = {real(o), real(lse)}, .run = merged},
      {.name = "a token that sees nothing takes its own value",
       .inputs = {real({2, 2, 4, 4}), real({2, 2, 4, 4}), real({2, 2, 4, 4})},
       .run = merged_alone},
  };
}

OpCase product_case(std::string name, CaseInput a, CaseInput b, CaseInput c, std::int64_t chunk) {
  const bool b_map = b.kind == Kind::parameter, c_map = c.kind == Kind::parameter;
  return {.name = std::move(name), .inputs = {a, b, c}, .run = [=](Ctx& ctx, Inputs in) {
            return std::vector{causal_product(ctx, in[0], {in[1], b_map}, {in[2], c_map},
                                              acc_of(in[0].dtype()), chunk)};
          }};
}

std::vector<OpCase> causal_product_cases() {
  return {
      product_case("tokens, chunks and a rest", real({2, 2, 7, 3}), real({2, 2, 7, 3}),
                   real({2, 2, 7, 4}), 3),
      product_case("onto a map, grouped heads", real({2, 4, 7, 3}), real({2, 2, 7, 3}),
                   parameter({5, 9}), 3),
      product_case("by a map, grouped heads", real({2, 4, 6, 5}), parameter({5, 9}),
                   real({2, 2, 6, 3}), 3),
      product_case("a map for each head", real({2, 2, 5, 3}), real({2, 2, 5, 3}),
                   parameter({2, 4, 5}), 2),
      product_case("one chunk", real({1, 2, 4, 3}), real({1, 2, 4, 3}), real({1, 2, 4, 3}), 128),
      product_case("one token", real({1, 1, 1, 3}), parameter({3, 2}), real({1, 1, 1, 2}), 4),
  };
}

std::vector<OpCase> slot_softmax_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    const DType dtype = in[0].dtype();
    const bool masked = in.size() > 1;
    const SlotSoftmax r =
        slot_softmax(c, cast(c, in[0], acc_of(dtype)), masked ? in[1].value() : Tensor{}, dtype);
    return masked ? std::vector{r.p} : std::vector{r.p, r.lse};
  };
  return {
      {.name = "with its log-sum-exp", .inputs = {real({2, 2, 5, 6}, 3)}, .run = run},
      {.name = "padding", .inputs = {real({2, 2, 5, 3}), mask({2, 5})}, .run = run},
      {.name = "rows of 300", .inputs = {real({1, 1, 2, 300}, 3)}, .run = run},
  };
}

std::vector<OpCase> zero_invalid_cases() {
  return {
      {.name = "padding",
       .inputs = {real({2, 2, 5, 3}), mask({2, 5})},
       .run = [](Ctx& c, Inputs in) { return std::vector{zero_invalid(c, in[0], in[1].value())}; }},
      {.name = "views of a packed projection",
       .inputs = {real({2, 5, 16}), mask({2, 5})},
       .run =
           [](Ctx& c, Inputs in) {
             const std::vector<Var> parts = split_heads(c, in[0], {{1, 8}, {1, 8}});
             return std::vector{zero_invalid(c, parts[1], in[1].value())};
           }},
  };
}

using Regroup = Var (*)(Ctx&, const Var&, std::int64_t);

template <Regroup regroup>
OpCase group_case(const std::string& name, Shape x, std::int64_t groups) {
  return {.name = name, .inputs = {real(x)}, .run = [groups](Ctx& c, Inputs in) {
            return std::vector{regroup(c, in[0], groups)};
          }};
}

// Forth and back, of a view that needs no copy.
std::vector<Var> split_and_joined(Ctx& c, Inputs in) {
  const std::vector<Var> parts = split_heads(c, in[0], {{2, 4}, {2, 4}});
  return {merge_heads(c, join_tokens(c, split_tokens(c, parts[1], 3), 3))};
}

std::vector<OpCase> split_tokens_cases() {
  return {group_case<split_tokens>("two samples in three groups", {2, 2, 6, 4}, 3),
          group_case<split_tokens>("one sample", {1, 3, 8, 4}, 4),
          group_case<split_tokens>("one group", {2, 2, 5, 4}, 1)};
}

std::vector<OpCase> join_tokens_cases() {
  return {
      group_case<join_tokens>("six samples to two", {6, 2, 2, 4}, 3),
      group_case<join_tokens>("four samples to one", {4, 1, 3, 4}, 4),
      {.name = "of a packed projection", .inputs = {real({2, 6, 16})}, .run = split_and_joined}};
}

std::vector<OpCase> repeat_samples_cases() {
  return {group_case<repeat_samples>("two samples three times", {2, 2, 3, 4}, 3),
          group_case<repeat_samples>("one sample", {1, 5, 4}, 4)};
}

struct Place {
  std::string_view family, header, cpu, cuda;
};
constexpr Place kPlaces[] = {
    {"basic", "src/kernels/basic.h", "src/kernels/cpu/basic.cpp", "src/kernels/cuda/basic.cu"},
    {"chunked", "src/kernels/chunked.h", "src/kernels/cpu/chunked.cpp",
     "src/kernels/cuda/chunked.cu"},
    {"low_rank", "src/kernels/low_rank.h", "src/kernels/cpu/low_rank.cpp",
     "src/kernels/cuda/low_rank.cu"},
    {"merge", "src/kernels/merge.h", "src/kernels/cpu/merge.cpp", "src/kernels/cuda/merge.cu"},
};

OpSpec spec(std::string_view name, std::string_view summary, std::string_view header,
            std::string_view autograd, std::string_view family, std::vector<OpCase> (*list)()) {
  for (const Place& place : kPlaces) {
    if (place.family == family)
      return {name, summary, header, autograd, place.header, place.cpu, place.cuda, list};
  }
  return {};
}

}  // namespace

OpList low_rank_ops();
OpList low_rank_ops() {
  constexpr std::string_view kMaps = "src/autograd/ops/low_rank.h",
                             kMapsCode = "src/autograd/ops/low_rank.cpp",
                             kProduct = "src/autograd/ops/causal_product.h";
  return {
      spec("causal_product", "tril(A B^T) C in chunks", kProduct,
           "src/autograd/ops/causal_product.cpp", "chunked", causal_product_cases),
      spec("compress_blocks", "blocks of tokens to slots by a learned map", kMaps, kMapsCode,
           "low_rank", compress_blocks_cases),
      spec("compress_tokens", "tokens to slots by a learned map", kMaps, kMapsCode, "low_rank",
           compress_tokens_cases),
      spec("join_tokens", "groups of tokens as one sequence again", kMaps,
           "src/autograd/ops/token_groups.cpp", "basic", join_tokens_cases),
      spec("merge_attention", "one softmax out of attention over disjoint keys", kMaps,
           "src/autograd/ops/merge.cpp", "merge", merge_cases),
      spec("renormalise_slots", "slots by their weight on valid tokens", kMaps, kMapsCode,
           "low_rank", renormalise_cases),
      spec("repeat_samples", "every sample several times", kMaps,
           "src/autograd/ops/token_groups.cpp", "basic", repeat_samples_cases),
      spec("slot_softmax", "softmax over slots, with its log-sum-exp", kProduct,
           "src/autograd/ops/slot_softmax.cpp", "chunked", slot_softmax_cases),
      spec("split_tokens", "groups of tokens as samples", kMaps,
           "src/autograd/ops/token_groups.cpp", "basic", split_tokens_cases),
      spec("zero_invalid", "the rows of invalid tokens zeroed", kProduct,
           "src/autograd/ops/slot_softmax.cpp", "low_rank", zero_invalid_cases),
  };
}

}  // namespace fovea
