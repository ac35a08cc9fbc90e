#include "autograd/op_registry.h"
#include "autograd/ops/activation.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/landmarks.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::mask;
using cases::parameter;
using cases::real;

OpCase mean_case(std::string name, std::vector<CaseInput> inputs, std::int64_t landmarks,
                 std::int64_t heads) {
  return {.name = std::move(name), .inputs = std::move(inputs), .run = [=](Ctx& c, Inputs in) {
            const Tensor valid = in.size() > 1 ? in[1].value() : Tensor{};
            const LandmarkCut cut =
                LandmarkCut::of(c, valid, in[0].size(0), in[0].size(2), landmarks);
            return std::vector{segment_mean(c, in[0], cut, heads)};
          }};
}

std::vector<OpCase> segment_mean_cases() {
  return {
      mean_case("7 tokens in 3 segments", {real({2, 2, 7, 3})}, 3, 2),
      mean_case("padding", {real({2, 2, 9, 3}), mask({2, 9})}, 3, 2),
      mean_case("grouped heads", {real({2, 2, 5, 3})}, 2, 4),
      mean_case("fewer tokens than segments, padding", {real({2, 1, 4, 3}), mask({2, 4})}, 6, 1),
      {.name = "views of a packed projection",
       .inputs = {real({2, 5, 16})},
       .run =
           [](Ctx& c, Inputs in) {
             const std::vector<Var> parts = split_heads(c, in[0], {{2, 4}, {2, 4}});
             return std::vector{segment_mean(c, parts[1], LandmarkCut::of(c, {}, 2, 5, 2), 2)};
           }},
  };
}

std::vector<OpCase> choose_samples_cases() {
  return {{.name = "three samples",
           .inputs = {real({3, 2, 4}), real({3, 2, 4}), mask({3})},
           .run = [](Ctx& c, Inputs in) {
             return std::vector{choose_samples(c, in[2].value(), in[0], in[1])};
           }}};
}

// Softmax plus the identity: well conditioned, and so many steps that the norms, which the backward
// pass takes for constants, no longer matter.
std::vector<Var> inverted(Ctx& c, Inputs in) {
  const DType acc = acc_of(in[0].dtype());
  const std::int64_t m = in[0].shape().cols();
  std::vector<double> values(static_cast<std::size_t>(in[0].numel()), 0.0);
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(m * m)) {
    for (std::int64_t j = 0; j < m; ++j)
      values[i + static_cast<std::size_t>(j * (m + 1))] = 1;
  }
  const Tensor host = Tensor::from(values, in[0].shape(), acc);
  const Var identity(c.device.is_cpu() ? host : host.to(c.device, c.stream));
  return {pseudo_inverse(c, add(c, softmax(c, cast(c, in[0], acc)), identity), 16)};
}

std::vector<OpCase> pseudo_inverse_cases() {
  return {
      {.name = "matrices of 4", .inputs = {real({2, 2, 4, 4})}, .run = inverted},
      {.name = "matrices of 1", .inputs = {real({3, 1, 1})}, .run = inverted},
      {.name = "matrices of 33", .inputs = {real({1, 33, 33})}, .run = inverted},
  };
}

OpCase conv_case(std::string name, std::vector<CaseInput> inputs) {
  return {.name = std::move(name), .inputs = std::move(inputs), .run = [](Ctx& c, Inputs in) {
            const Tensor valid = in.size() > 3 ? in[3].value() : Tensor{};
            return std::vector{add_token_conv(c, in[0], in[1], in[2], valid)};
          }};
}

std::vector<OpCase> token_conv_cases() {
  return {
      conv_case("three taps", {real({2, 2, 6, 3}), real({2, 2, 6, 3}), parameter({2, 3})}),
      conv_case("grouped heads, padding",
                {real({2, 4, 7, 3}), real({2, 2, 7, 3}), parameter({4, 5}), mask({2, 7})}),
      conv_case("more taps than tokens",
                {real({1, 2, 3, 4}), real({1, 2, 3, 4}), parameter({2, 9})}),
      conv_case("an even number of taps", {real({1, 1, 5, 2}), real({1, 1, 5, 2}), real({1, 4})}),
      conv_case("several tiles", {real({1, 2, 150, 8}), real({1, 2, 150, 8}), parameter({2, 33})}),
  };
}

OpSpec spec(std::string_view name, std::string_view summary, std::string_view autograd,
            std::vector<OpCase> (*list)()) {
  return {name,
          summary,
          "src/autograd/ops/landmarks.h",
          autograd,
          "src/kernels/landmarks.h",
          "src/kernels/cpu/landmarks.cpp",
          "src/kernels/cuda/landmarks.cu",
          list};
}

}  // namespace

OpList landmark_ops();
OpList landmark_ops() {
  constexpr std::string_view kCode = "src/autograd/ops/landmarks.cpp";
  return {
      spec("add_token_conv", "a convolution along the tokens, added", kCode, token_conv_cases),
      spec("choose_samples", "one of two tensors, sample by sample", kCode, choose_samples_cases),
      spec("pseudo_inverse", "the pseudo-inverse of small matrices by iteration",
           "src/autograd/ops/pseudo_inverse.cpp", pseudo_inverse_cases),
      spec("segment_mean", "means over consecutive segments of the tokens", kCode,
           segment_mean_cases),
  };
}

}  // namespace fovea
