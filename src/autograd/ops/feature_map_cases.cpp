#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/feature_map.h"

namespace fovea {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;

namespace {

CaseInput fixed(CaseInput input) {
  input.differentiable = false;
  return input;
}

// Draws are f32 whatever is computed in.
Tensor draws(Ctx& ctx, const Var& x) {
  return cast(ctx, x.detached(), DType::f32).value();
}

// x, then w of a random map, then what `set` takes.
OpCase random_case(std::string name, Shape x, Shape w, const Features& how) {
  OpCase out{.name = std::move(name), .inputs = {real(x), fixed(real(w, 1.5))}, .run = nullptr};
  out.run = [how](Ctx& c, Inputs in) {
    Features map = how;
    map.w = draws(c, in[1]);
    return std::vector{map_features(c, in[0], map).y};
  };
  out.flops = 2 * static_cast<double>(x.numel() * w[w.rank() - 2]);
  return out;
}

OpCase masked_case(std::string name, const Features& how) {
  OpCase out{.name = std::move(name),
             .inputs = {real({2, 2, 7, 5}), {{2, 7}, Kind::mask}, fixed(real({9, 5}, 1.5))},
             .run = nullptr};
  out.run = [how](Ctx& c, Inputs in) {
    Features map = how;
    if (how.exponential() || how.kind == FeatureKind::relu_random) map.w = draws(c, in[2]);
    return std::vector{map_features(c, in[0], map, in[1].value()).y};
  };
  return out;
}

OpCase plain_case(std::string name, Shape x, const Features& how) {
  OpCase out{.name = std::move(name), .inputs = {real(x, 3)}, .run = nullptr};
  out.run = [how](Ctx& c, Inputs in) { return std::vector{map_features(c, in[0], how).y}; };
  return out;
}

// x [B,Hx,N,D], w, sigma [H,D].
OpCase fourier_case(std::string name, Shape x, Shape w, Shape sigma, bool entries) {
  OpCase out{.name = std::move(name),
             .inputs = {real(x), fixed(real(w, 1.5)), parameter(sigma)},
             .run = nullptr};
  if (entries) out.inputs.push_back({{sigma[0]}, Kind::ids, 0, static_cast<double>(w[0])});
  out.run = [entries](Ctx& c, Inputs in) {
    Features map{.kind = FeatureKind::fourier, .temperature = 1.3};
    map.w = draws(c, in[1]);
    map.sigma = in[2];
    if (entries) map.entries = in[3].value();
    return std::vector{map_features(c, in[0], map).y};
  };
  return out;
}

// Strided heads of a packed projection.
OpCase packed_case() {
  OpCase out{.name = "heads of a packed projection", .inputs = {real({2, 5, 24})}, .run = nullptr};
  out.run = [](Ctx& c, Inputs in) {
    const Var q = split_heads(c, in[0], {{2, 4}, {4, 4}})[1];
    return std::vector{map_features(c, q, {.kind = FeatureKind::elu}).y};
  };
  return out;
}

std::vector<OpCase> map_cases() {
  const Features softmax{.kind = FeatureKind::softmax, .scale = 0.7};
  const Features pair{.kind = FeatureKind::softmax_pair, .scale = 0.7};
  const Features constant{
      .kind = FeatureKind::softmax, .stabiliser = Stabiliser::constant, .scale = 0.8, .eps = 1e-2};
  const Features relu_random{.kind = FeatureKind::relu_random, .scale = 0.7, .offset = 1e-3};
  const Features relu{.kind = FeatureKind::relu, .scale = 0.7, .offset = 1e-3};
  const Features elu{.kind = FeatureKind::elu};
  const Features cosine{.kind = FeatureKind::cosine, .reference = 40};
  return {
      random_case("softmax", {2, 2, 7, 5}, {9, 5}, softmax),
      random_case("softmax of a matrix for each of two groups", {1, 4, 3, 8}, {2, 16, 8}, softmax),
      random_case("softmax, several blocks of rows", {1, 1, 70, 16}, {33, 16}, softmax),
      random_case("softmax of pairs", {2, 2, 7, 5}, {6, 5}, pair),
      random_case("softmax with a constant stabiliser", {2, 2, 7, 5}, {9, 5}, constant),
      random_case(
          "pairs with a constant stabiliser", {1, 2, 3, 4}, {5, 4},
          {.kind = FeatureKind::softmax_pair, .stabiliser = Stabiliser::constant, .eps = 1e-2}),
      masked_case("softmax with padding", softmax),
      random_case("random relu", {2, 2, 7, 5}, {9, 5}, relu_random),
      masked_case("random relu with padding", relu_random),
      plain_case("relu", {2, 2, 7, 5}, relu),
      plain_case("elu", {2, 2, 7, 5}, elu),
      plain_case("elu, whole vectors", {1, 2, 3, 64}, elu),
      masked_case("elu with padding", elu),
      plain_case("cosine", {2, 2, 7, 5}, cosine),
      masked_case("cosine with padding", cosine),
      fourier_case("fourier", {2, 2, 7, 5}, {6, 5}, {2, 5}, false),
      fourier_case("fourier, four heads of two", {2, 2, 7, 5}, {6, 5}, {4, 5}, false),
      fourier_case("fourier, matrices by entry", {1, 2, 70, 4}, {3, 17, 4}, {2, 4}, true),
      packed_case(),
  };
}

}  // namespace

OpList feature_map_ops();
OpList feature_map_ops() {
  return {{.name = "map_features",
           .summary = "Feature maps of kernel attention: random, elementwise and rotating.",
           .header = "src/autograd/ops/feature_map.h",
           .autograd = "src/autograd/ops/feature_map.cpp",
           .kernels = "src/kernels/feature_map.h",
           .cpu = "src/kernels/cpu/feature_map.cpp",
           .cuda = "src/kernels/cuda/feature_map.cu",
           .cases = map_cases}};
}

}  // namespace fovea
