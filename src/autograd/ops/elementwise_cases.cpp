#include <string>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::real;

CaseInput frozen(Shape shape) {
  return {shape, Kind::real, -1, 1, false};
}

std::vector<OpCase> add_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{add(c, in[0], in[1])}; };
  const auto twice = [](Ctx& c, Inputs in) { return std::vector{add(c, in[0], in[0])}; };
  return {
      {.name = "whole vectors", .inputs = {real({4, 32}), real({4, 32})}, .run = run},
      {.name = "odd size", .inputs = {real({3, 7}), real({3, 7})}, .run = run},
      {.name = "a parameter", .inputs = {real({2, 5}), {{2, 5}, Kind::parameter}}, .run = run},
      {.name = "one input frozen", .inputs = {frozen({2, 5}), real({2, 5})}, .run = run},
      {.name = "an input added to itself", .inputs = {real({2, 5})}, .run = twice},
  };
}

std::vector<OpCase> mul_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{mul(c, in[0], in[1])}; };
  const auto square = [](Ctx& c, Inputs in) { return std::vector{mul(c, in[0], in[0])}; };
  return {
      {.name = "odd size", .inputs = {real({3, 7}), real({3, 7})}, .run = run},
      {.name = "one input frozen", .inputs = {real({2, 33}), frozen({2, 33})}, .run = run},
      {.name = "a square", .inputs = {real({2, 5})}, .run = square},
  };
}

std::vector<OpCase> scale_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{scale(c, in[0], -0.375)}; };
  return {
      {.name = "odd size", .inputs = {real({3, 7})}, .run = run},
      {.name = "one element", .inputs = {real({})}, .run = run},
  };
}

std::vector<OpCase> sum_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{sum(c, in[0])}; };
  return {
      {.name = "odd size", .inputs = {{{3, 7}, Kind::real, 0, 1}}, .run = run},
      {.name = "several pieces", .inputs = {{{3, 5000}, Kind::real, 0, 1}}, .run = run},
      {.name = "one element", .inputs = {real({1})}, .run = run},
  };
}

std::vector<OpCase> reshape_cases() {
  return {
      {.name = "joined axes",
       .inputs = {real({2, 3, 4})},
       .run =
           [](Ctx& c, Inputs in) {
             return std::vector{reshape(c, in[0], {6, 4})};
           }},
      {.name = "of a permuted gradient",
       .inputs = {real({6, 4})},
       .run =
           [](Ctx& c, Inputs in) {
             return std::vector{merge_heads(c, reshape(c, in[0], {1, 2, 3, 4}))};
           }},
  };
}

std::vector<OpCase> permute_cases() {
  const auto by = [](const std::vector<int>& order) {
    return [order](Ctx& c, Inputs in) { return std::vector{permute(c, in[0], order)}; };
  };
  return {
      {.name = "heads", .inputs = {real({2, 3, 4, 5})}, .run = by({0, 2, 1, 3})},
      {.name = "transposed", .inputs = {real({7, 19})}, .run = by({1, 0})},
      {.name = "a cycle", .inputs = {real({2, 3, 4})}, .run = by({2, 0, 1})},
      {.name = "nothing moves", .inputs = {real({2, 3})}, .run = by({0, 1})},
  };
}

std::vector<OpCase> cast_cases() {
  const auto there_and_back = [](Ctx& c, Inputs in) {
    const Var wide = cast(c, in[0], acc_of(in[0].dtype()));
    return std::vector{wide, cast(c, wide, in[0].dtype())};
  };
  return {
      {.name = "to acc and back", .inputs = {real({3, 7})}, .run = there_and_back},
      {.name = "several runs", .inputs = {real({2, 20000})}, .run = there_and_back},
  };
}

std::vector<OpCase> split_heads_cases() {
  const auto all = [](const std::vector<HeadPart>& parts) {
    return [parts](Ctx& c, Inputs in) { return split_heads(c, in[0], parts); };
  };
  return {
      {.name = "three equal parts",
       .inputs = {real({2, 3, 24})},
       .run = all({{2, 4}, {2, 4}, {2, 4}})},
      {.name = "parts of other widths",
       .inputs = {real({2, 3, 25})},
       .run = all({{4, 4}, {1, 4}, {1, 5}})},
      {.name = "1 token, 1 head", .inputs = {real({1, 1, 6})}, .run = all({{1, 6}})},
      {.name = "a part nobody reads",
       .inputs = {real({2, 3, 12})},
       .run =
           [](Ctx& c, Inputs in) {
             return std::vector{split_heads(c, in[0], {{1, 4}, {1, 4}, {1, 4}})[1]};
           }},
  };
}

std::vector<OpCase> merge_heads_cases() {
  return {
      {.name = "contiguous",
       .inputs = {real({2, 3, 4, 5})},
       .run = [](Ctx& c, Inputs in) { return std::vector{merge_heads(c, in[0])}; }},
      {.name = "as it lies after a split",
       .inputs = {real({2, 3, 8})},
       .run =
           [](Ctx& c, Inputs in) {
             return std::vector{merge_heads(c, split_heads(c, in[0], {{2, 4}})[0])};
           }},
  };
}

OpSpec spec(std::string_view name, std::string_view summary, std::string_view autograd,
            std::vector<OpCase> (*cases)()) {
  return {name,
          summary,
          "src/autograd/ops/elementwise.h",
          autograd,
          "src/kernels/basic.h",
          "src/kernels/cpu/basic.cpp",
          "src/kernels/cuda/basic.cu",
          cases};
}

}  // namespace

OpList elementwise_ops();
OpList elementwise_ops() {
  constexpr std::string_view kArithmetic = "src/autograd/ops/elementwise.cpp",
                             kLayout = "src/autograd/ops/layout.cpp";
  return {
      spec("add", "a + b", kArithmetic, add_cases),
      spec("cast", "x in another dtype", kArithmetic, cast_cases),
      spec("merge_heads", "[B,H,N,D] to [B,N,H*D]", kLayout, merge_heads_cases),
      spec("mul", "a * b, element by element", kArithmetic, mul_cases),
      spec("permute", "axes in another order", kLayout, permute_cases),
      spec("reshape", "another shape of the same elements", kLayout, reshape_cases),
      spec("scale", "alpha * x", kArithmetic, scale_cases),
      spec("split_heads", "a packed projection as strided heads", kLayout, split_heads_cases),
      spec("sum", "the sum of all elements", kArithmetic, sum_cases),
  };
}

}  // namespace fovea
