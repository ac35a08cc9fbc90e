#include <string>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/activation.h"
#include "autograd/ops/case_inputs.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::real;

std::vector<OpCase> gelu_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{gelu(c, in[0])}; };
  return {
      {.name = "whole vectors", .inputs = {real({4, 32}, 3)}, .run = run},
      {.name = "odd size", .inputs = {real({3, 7, 5}, 3)}, .run = run},
      {.name = "both tails", .inputs = {real({2, 37}, 12)}, .run = run},
      {.name = "one element", .inputs = {real({1})}, .run = run},
  };
}

std::vector<OpCase> swiglu_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{swiglu(c, in[0])}; };
  return {
      {.name = "whole vectors", .inputs = {real({3, 64}, 3)}, .run = run},
      {.name = "odd width, 1 row", .inputs = {real({1, 38}, 4)}, .run = run},
      {.name = "batched", .inputs = {real({2, 3, 10})}, .run = run},
  };
}

std::vector<OpCase> softmax_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{softmax(c, in[0])}; };
  return {
      {.name = "whole vectors", .inputs = {real({3, 32}, 3)}, .run = run},
      {.name = "odd width", .inputs = {real({2, 3, 21}, 2)}, .run = run},
      {.name = "far from zero", .inputs = {{{2, 9}, CaseInput::Kind::real, 300, 302}}, .run = run},
      {.name = "1 column", .inputs = {real({4, 1})}, .run = run},
  };
}

OpCase dropout_case(std::string name, Shape shape, double p, bool training) {
  OpCase out;
  out.name = std::move(name);
  out.inputs = {real(shape)};
  out.run = [p, training](Ctx& c, Inputs in) {
    Ctx inner = c;
    inner.training = training;
    return std::vector{dropout(inner, in[0], p, c.key("case"))};
  };
  return out;
}

std::vector<OpCase> dropout_cases() {
  return {
      dropout_case("a quarter, odd size", {5, 3, 7}, 0.25, true),
      dropout_case("half, several blocks", {2, 200}, 0.5, true),
      dropout_case("nothing dropped", {3, 5}, 0, true),
      dropout_case("evaluation", {3, 5}, 0.5, false),
  };
}

}  // namespace

OpList activation_ops();
OpList activation_ops() {
  const auto spec = [](std::string_view name, std::string_view summary,
                       std::vector<OpCase> (*cases)()) {
    return OpSpec{name,
                  summary,
                  "src/autograd/ops/activation.h",
                  "src/autograd/ops/activation.cpp",
                  "src/kernels/activation.h",
                  "src/kernels/cpu/activation.cpp",
                  "src/kernels/cuda/activation.cu",
                  cases};
  };
  return {
      spec("dropout", "drops elements with probability p, scales the rest by 1/(1-p)",
           dropout_cases),
      spec("gelu", "GELU, tanh form", gelu_cases),
      spec("softmax", "softmax over the last axis", softmax_cases),
      spec("swiglu", "silu(gate) * up of a packed [gate | up]", swiglu_cases),
  };
}

}  // namespace fovea
