#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/feature_projection.h"
#include "autograd/ops/linear.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::parameter;
using cases::real;

Var wide(Ctx& c, const Var& x) {
  return cast(c, x, acc_of(x.dtype()));
}

OpCase project_case(std::string name, std::vector<CaseInput> inputs, std::int64_t heads) {
  return {.name = std::move(name), .inputs = std::move(inputs), .run = [heads](Ctx& c, Inputs in) {
            return std::vector{project_features(c, in[0], wide(c, in[1]), heads)};
          }};
}

std::vector<OpCase> project_cases() {
  return {
      project_case("one matrix for all heads", {real({2, 3, 5, 4}), parameter({1, 4, 3})}, 3),
      project_case("a matrix for each head", {real({2, 3, 5, 4}), parameter({3, 4, 2})}, 3),
      project_case("a matrix for two query heads", {real({2, 4, 5, 4}), parameter({2, 4, 3})}, 4),
      project_case("heads side by side", {real({2, 2, 5, 4}), parameter({1, 8, 6})}, 2),
      project_case("heads side by side become one", {real({2, 2, 5, 4}), real({1, 8, 5})}, 1),
      project_case("one token", {real({3, 2, 1, 4}), parameter({1, 4, 2})}, 2),
      {.name = "views of a packed projection",
       .inputs = {real({2, 5, 20}), parameter({1, 4, 3})},
       .run =
           [](Ctx& c, Inputs in) {
             const std::vector<Var> parts = split_heads(c, in[0], {{2, 4}, {3, 4}});
             return std::vector{project_features(c, parts[1], wide(c, in[1]), 3)};
           }},
  };
}

// q rows [2 heads of 3], k rows [1 head of 3], and 2 rows that stay.
std::vector<FoldPart> parts_of(Ctx& c, const Var& s) {
  return {{6, wide(c, s)}, {3, wide(c, s)}, {2}};
}

std::vector<OpCase> fold_cases() {
  return {
      {.name = "a packed weight",
       .inputs = {parameter({11, 5}), parameter({1, 3, 2})},
       .run = [](Ctx& c,
                 Inputs in) { return std::vector{fold_features(c, in[0], parts_of(c, in[1]))}; }},
      {.name = "a bias",
       .inputs = {parameter({11}), real({1, 3, 2})},
       .run = [](Ctx& c,
                 Inputs in) { return std::vector{fold_features(c, in[0], parts_of(c, in[1]))}; }},
      {.name = "a matrix for two heads, and a product behind it",
       .inputs = {real({4, 6}), parameter({12, 6}), parameter({2, 3, 2})},
       .run =
           [](Ctx& c, Inputs in) {
             const Var w = fold_features(c, in[1], {{12, wide(c, in[2])}});
             return std::vector{linear(c, in[0], w, {})};
           }},
      {.name = "heads side by side",
       .inputs = {parameter({8, 3}), parameter({1, 4, 5})},
       .run =
           [](Ctx& c, Inputs in) {
             return std::vector{fold_features(c, in[0], {{4, wide(c, in[1])}, {4}})};
           }},
  };
}

std::vector<OpCase> join_cases() {
  return {{.name = "two matrices",
           .inputs = {real({2, 3, 4}), parameter({2, 3, 5})},
           .run = [](Ctx& c, Inputs in) { return std::vector{join_features(c, in[0], in[1])}; }}};
}

std::vector<OpCase> repeat_cases() {
  const auto run = [](std::int64_t count) {
    return [count](Ctx& c, Inputs in) { return std::vector{repeat_matrices(c, in[0], count)}; };
  };
  return {{.name = "one matrix three times", .inputs = {parameter({1, 3, 4})}, .run = run(3)},
          {.name = "two matrices twice", .inputs = {real({2, 3, 5})}, .run = run(4)}};
}

std::vector<OpCase> scale_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return std::vector{scale_heads(c, in[0], wide(c, in[1]))};
  };
  return {{.name = "8 features", .inputs = {real({2, 3, 5, 8}), parameter({3})}, .run = run},
          {.name = "odd width", .inputs = {real({1, 2, 70, 3}), real({2})}, .run = run},
          {.name = "behind merged heads",
           .inputs = {real({2, 5, 16}), parameter({2})},
           .run = [](Ctx& c, Inputs in) {
             const std::vector<Var> parts = split_heads(c, in[0], {{2, 8}});
             return std::vector{merge_heads(c, scale_heads(c, parts[0], wide(c, in[1])))};
           }}};
}

OpSpec spec(std::string_view name, std::string_view summary, std::string_view code,
            std::string_view family, std::vector<OpCase> (*list)()) {
  const bool scale = family == "head_scale", bias = family == "bias", gemm = family == "gemm";
  return {name,
          summary,
          "src/autograd/ops/feature_projection.h",
          code,
          scale  ? "src/kernels/head_scale.h"
          : bias ? "src/kernels/bias.h"
          : gemm ? "src/kernels/gemm.h"
                 : "src/kernels/basic.h",
          scale  ? "src/kernels/cpu/head_scale.cpp"
          : bias ? "src/kernels/cpu/bias.cpp"
          : gemm ? "src/kernels/cpu/gemm.cpp"
                 : "src/kernels/cpu/basic.cpp",
          scale  ? "src/kernels/cuda/head_scale.cu"
          : bias ? "src/kernels/cuda/bias.cu"
          : gemm ? "src/kernels/cuda/gemm.cpp"
                 : "src/kernels/cuda/basic.cu",
          list};
}

}  // namespace

OpList feature_projection_ops();
OpList feature_projection_ops() {
  constexpr std::string_view kProducts = "src/autograd/ops/feature_projection.cpp",
                             kMatrices = "src/autograd/ops/head_matrices.cpp";
  return {
      spec("fold_features", "a feature map folded into the weights before it", kProducts, "gemm",
           fold_cases),
      spec("join_features", "columns of matrices side by side", kMatrices, "basic", join_cases),
      spec("project_features", "a small matrix on the features of heads", kProducts, "gemm",
           project_cases),
      spec("repeat_matrices", "each of several matrices a few times", kMatrices, "bias",
           repeat_cases),
      spec("scale_heads", "one factor a head", kMatrices, "head_scale", scale_cases),
  };
}

}  // namespace fovea
