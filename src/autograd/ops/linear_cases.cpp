#include "autograd/op_registry.h"
#include "autograd/ops/activation.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/linear.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;

std::vector<OpCase> linear_cases() {
  const auto with_bias = [](Ctx& c, Inputs in) {
    return std::vector{linear(c, in[0], in[1], in[2])};
  };
  const auto without = [](Ctx& c, Inputs in) { return std::vector{linear(c, in[0], in[1], {})}; };
  return {
      {.name = "bias, 3 rows",
       .inputs = {real({3, 5}), parameter({7, 5}), parameter({7})},
       .run = with_bias,
       .flops = 2 * 3 * 5 * 7},
      {.name = "bias, batched",
       .inputs = {real({2, 65, 8}), parameter({6, 8}), parameter({6})},
       .run = with_bias,
       .flops = 2 * 130 * 8 * 6},
      {.name = "no bias",
       .inputs = {real({4, 16}), parameter({16, 16})},
       .run = without,
       .flops = 2 * 4 * 16 * 16},
      {.name = "computed weight and bias",
       .inputs = {real({4, 6}), real({3, 6}), real({3})},
       .run = with_bias,
       .flops = 2 * 4 * 6 * 3},
      {.name = "one row, one output",
       .inputs = {real({9}), parameter({1, 9}), parameter({1})},
       .run = with_bias,
       .flops = 2 * 9},
  };
}

std::vector<OpCase> linear_gelu_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return std::vector{linear_gelu(c, in[0], in[1], in.size() > 2 ? in[2] : Var{})};
  };
  const auto composition = [](Ctx& c, Inputs in) {
    return std::vector{gelu(c, linear(c, in[0], in[1], in.size() > 2 ? in[2] : Var{}))};
  };
  return {
      {.name = "bias",
       .inputs = {real({2, 5, 8}), parameter({20, 8}), parameter({20})},
       .run = run,
       .composition = composition,
       .flops = 2 * 10 * 8 * 20},
      {.name = "no bias",
       .inputs = {real({3, 8}), parameter({17, 8})},
       .run = run,
       .composition = composition,
       .flops = 2 * 3 * 8 * 17},
      {.name = "more than one block of rows",
       .inputs = {real({131, 3}), parameter({5, 3}), parameter({5})},
       .run = run,
       .composition = composition,
       .flops = 2 * 131 * 3 * 5},
  };
}

std::vector<OpCase> bmm_cases() {
  std::vector<OpCase> out;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Shape a = ta ? Shape{2, 3, 6, 4} : Shape{2, 3, 4, 6},
                  b = tb ? Shape{2, 3, 5, 6} : Shape{2, 3, 6, 5};
      out.push_back(
          {.name = std::string(ta ? "a transposed, " : "") + (tb ? "b transposed" : "b as it is"),
           .inputs = {real(a), real(b)},
           .run = [ta, tb](Ctx& c, Inputs in) { return std::vector{bmm(c, in[0], in[1], ta, tb)}; },
           .flops = 2 * 6 * 4 * 6 * 5});
    }
  }
  out.push_back({.name = "matrices, a parameter",
                 .inputs = {real({4, 6}), parameter({6, 5})},
                 .run = [](Ctx& c, Inputs in) { return std::vector{bmm(c, in[0], in[1])}; },
                 .flops = 2 * 4 * 6 * 5});
  return out;
}

OpSpec spec(std::string_view name, std::string_view summary, std::vector<OpCase> (*cases)()) {
  return {name,
          summary,
          "src/autograd/ops/linear.h",
          "src/autograd/ops/linear.cpp",
          "src/kernels/gemm.h",
          "src/kernels/cpu/gemm.cpp",
          "src/kernels/cuda/gemm.cpp",
          cases};
}

}  // namespace

OpList linear_ops();
OpList linear_ops() {
  return {
      spec("bmm", "batched matrix product", bmm_cases),
      spec("linear", "x w^T + b", linear_cases),
      spec("linear_gelu", "gelu(x w^T + b), fused", linear_gelu_cases),
  };
}

}  // namespace fovea
