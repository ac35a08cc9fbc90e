#include <string>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/norm.h"

namespace fovea {

namespace {

using Kind = CaseInput::Kind;
using Inputs = std::span<const Var>;

constexpr double kEps = 1e-5;

CaseInput real(Shape shape) {
  return {shape, Kind::real, -2, 3};
}
CaseInput parameter(std::int64_t width) {
  return {{width}, Kind::parameter, 0.5, 1.5};
}
CaseInput computed(std::int64_t width) {
  return {{width}, Kind::real, 0.5, 1.5};
}
CaseInput frozen(CaseInput input) {
  input.differentiable = false;
  return input;
}

std::vector<Var> pair(const ResidualNorm& both) {
  return {both.sum, both.norm};
}
Var or_none(Inputs in, std::size_t i) {
  return i < in.size() ? in[i] : Var();
}

std::vector<OpCase> layer_norm_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return std::vector{layer_norm(c, in[0], in[1], or_none(in, 2), kEps)};
  };
  return {
      {.name = "whole vectors",
       .inputs = {real({6, 32}), parameter(32), parameter(32)},
       .run = run},
      {.name = "odd width", .inputs = {real({2, 3, 21}), parameter(21), parameter(21)}, .run = run},
      {.name = "1 row", .inputs = {real({1, 9}), parameter(9), parameter(9)}, .run = run},
      {.name = "several blocks of rows",
       .inputs = {real({2500, 20}), parameter(20), parameter(20)},
       .run = run},
      {.name = "no beta", .inputs = {real({4, 13}), parameter(13)}, .run = run},
      {.name = "frozen parameters",
       .inputs = {real({4, 16}), frozen(parameter(16)), frozen(parameter(16))},
       .run = run},
      {.name = "frozen input and beta",
       .inputs = {frozen(real({4, 16})), parameter(16), frozen(parameter(16))},
       .run = run},
      {.name = "computed parameters",
       .inputs = {real({4, 11}), computed(11), computed(11)},
       .run = run},
  };
}

std::vector<OpCase> rms_norm_cases() {
  const auto run = [](Ctx& c, Inputs in) { return std::vector{rms_norm(c, in[0], in[1], kEps)}; };
  const auto strided = [](Ctx& c, Inputs in) {
    return std::vector{rms_norm(c, split_heads(c, in[0], {{2, 8}, {1, 8}})[0], in[1], kEps)};
  };
  return {
      {.name = "whole vectors", .inputs = {real({6, 32}), parameter(32)}, .run = run},
      {.name = "odd width, 1 row", .inputs = {real({1, 21}), parameter(21)}, .run = run},
      {.name = "several blocks of rows",
       .inputs = {real({2, 1200, 18}), parameter(18)},
       .run = run},
      {.name = "frozen gamma", .inputs = {real({4, 16}), frozen(parameter(16))}, .run = run},
      {.name = "computed gamma", .inputs = {real({4, 7}), computed(7)}, .run = run},
      {.name = "strided heads", .inputs = {real({2, 3, 24}), parameter(8)}, .run = strided},
  };
}

std::vector<OpCase> residual_layer_norm_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return pair(residual_layer_norm(c, in[0], in[1], in[2], or_none(in, 3), kEps));
  };
  const auto composition = [](Ctx& c, Inputs in) {
    const Var sum = add(c, in[0], in[1]);
    return std::vector{sum, layer_norm(c, sum, in[2], or_none(in, 3), kEps)};
  };
  const auto norm_only = [](Ctx& c, Inputs in) {
    return std::vector{residual_layer_norm(c, in[0], in[1], in[2], in[3], kEps).norm};
  };
  const auto sum_only = [](Ctx& c, Inputs in) {
    return std::vector{residual_layer_norm(c, in[0], in[1], in[2], in[3], kEps).sum};
  };
  const auto inputs = [](Shape shape) {
    const std::int64_t width = shape.cols();
    return std::vector{real(shape), real(shape), parameter(width), parameter(width)};
  };
  return {
      {.name = "whole vectors", .inputs = inputs({6, 32}), .run = run, .composition = composition},
      {.name = "odd width", .inputs = inputs({2, 3, 21}), .run = run, .composition = composition},
      {.name = "no beta",
       .inputs = {real({4, 13}), real({4, 13}), parameter(13)},
       .run = run,
       .composition = composition},
      {.name = "frozen branch",
       .inputs = {real({4, 16}), frozen(real({4, 16})), parameter(16), parameter(16)},
       .run = run,
       .composition = composition},
      {.name = "a branch whose bias waits for its column sums",
       .inputs = {real({40, 768}),
                  real({40, 8}),
                  parameter(768),
                  parameter(768),
                  {{768, 8}, CaseInput::Kind::parameter},
                  parameter(768)},
       .run =
           [](Ctx& c, Inputs in) {
             return pair(
                 residual_layer_norm(c, in[0], linear(c, in[1], in[4], in[5]), in[2], in[3], kEps));
           },
       .composition =
           [](Ctx& c, Inputs in) {
             const Var sum = add(c, in[0], linear(c, in[1], in[4], in[5]));
             return std::vector{sum, layer_norm(c, sum, in[2], in[3], kEps)};
           }},
      {.name = "only the norm is used", .inputs = inputs({5, 12}), .run = norm_only},
      {.name = "only the sum is used", .inputs = inputs({5, 12}), .run = sum_only},
  };
}

std::vector<OpCase> residual_rms_norm_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return pair(residual_rms_norm(c, in[0], in[1], in[2], kEps));
  };
  const auto composition = [](Ctx& c, Inputs in) {
    const Var sum = add(c, in[0], in[1]);
    return std::vector{sum, rms_norm(c, sum, in[2], kEps)};
  };
  return {
      {.name = "whole vectors",
       .inputs = {real({6, 32}), real({6, 32}), parameter(32)},
       .run = run,
       .composition = composition},
      {.name = "odd width, 1 row",
       .inputs = {real({1, 21}), real({1, 21}), parameter(21)},
       .run = run,
       .composition = composition},
      {.name = "frozen input and gamma",
       .inputs = {frozen(real({4, 16})), real({4, 16}), frozen(parameter(16))},
       .run = run,
       .composition = composition},
  };
}

}  // namespace

OpList norm_ops();
OpList norm_ops() {
  const auto spec = [](std::string_view name, std::string_view summary,
                       std::vector<OpCase> (*cases)()) {
    return OpSpec{name,
                  summary,
                  "src/autograd/ops/norm.h",
                  "src/autograd/ops/norm.cpp",
                  "src/kernels/norm.h",
                  "src/kernels/cpu/norm.cpp",
                  "src/kernels/cuda/norm.cu",
                  cases};
  };
  return {
      spec("layer_norm", "layer norm over the last axis", layer_norm_cases),
      spec("residual_layer_norm", "x + branch and its layer norm, fused",
           residual_layer_norm_cases),
      spec("residual_rms_norm", "x + branch and its RMS norm, fused", residual_rms_norm_cases),
      spec("rms_norm", "RMS norm over the last axis", rms_norm_cases),
  };
}

}  // namespace fovea
