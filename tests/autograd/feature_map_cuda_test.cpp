// Random features of heads as wide as models have them: too many numbers for the cases that are
// differentiated numerically.

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_registry.h"
#include "autograd/ops/feature_map.h"
#include "core/cuda_runtime.h"
#include "core/text.h"
#include "skip.h"

using namespace fovea;

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

// f32 numbers that 16 bits do not hold.
Tensor directions(Ctx& ctx, const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.5 * std::sin(1.7 + 12.9898 * static_cast<double>(i % 7919));
  return Tensor::from(values, shape, DType::f32).to(ctx.device, ctx.stream);
}

OpCase wide_case(const std::string& name, const Shape& x, const Shape& w, const Features& how) {
  OpCase out{.name = cat(name, ", rows of ", x[3], ", directions ", w.str()),
             .inputs = {{x}, {{x[0], x[2]}, CaseInput::Kind::mask}},
             .run = nullptr};
  out.run = [how, w](Ctx& c, std::span<const Var> in) {
    Features map = how;
    map.w = directions(c, w);
    return std::vector{map_features(c, in[0], map, in[1].value()).y};
  };
  return out;
}

// x, mask, sigma, the matrix of each head.
OpCase fourier_case(const Shape& x, std::int64_t heads, std::int64_t count) {
  OpCase out{.name = cat("rows of ", x[3], ", ", count, " directions, ", heads, " heads"),
             .inputs = {{x},
                        {{x[0], x[2]}, CaseInput::Kind::mask},
                        {{heads, x[3]}, CaseInput::Kind::parameter},
                        {{heads}, CaseInput::Kind::ids, 0, 3}},
             .run = nullptr};
  out.run = [width = x[3], count](Ctx& c, std::span<const Var> in) {
    Features map{.kind = FeatureKind::fourier, .temperature = 0.7};
    map.w = directions(c, {3, count, width});
    map.sigma = in[2];
    map.entries = in[3].value();
    return std::vector{map_features(c, in[0], map, in[1].value()).y};
  };
  return out;
}

void check_on_cuda(const OpCase& op_case) {
  for (const Precision precision :
       {Precision::fp32, Precision::bf16_mixed, Precision::fp16_mixed}) {
    CAPTURE(std::string(name_of(precision)));
    for (const CheckResult& result : check_precision(op_case, precision, kGpu)) {
      INFO(op_case.name, ", ", result.what, ": error ", result.error, ", bound ", result.bound);
      CHECK(result.passed());
    }
    CHECK(check_repeats(op_case, precision, kGpu, 5)[0].error == 0);
  }
}

}  // namespace

TEST_CASE("sines and cosines of whole heads on CUDA agree with f64 on the CPU, and repeat") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const OpCase& op_case :
       {fourier_case({2, 3, 150, 64}, 3, 64), fourier_case({1, 4, 65, 64}, 4, 128),
        fourier_case({1, 2, 130, 24}, 2, 40), fourier_case({1, 2, 70, 64}, 4, 64),
        fourier_case({1, 2, 70, 80}, 2, 72)})
    check_on_cuda(op_case);
}

TEST_CASE("random features of whole heads on CUDA agree with f64 on the CPU, and repeat") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  using enum FeatureKind;
  const struct {
    const char* name;
    Features how;
  } maps[] = {
      {"softmax", {.kind = softmax, .scale = 0.35}},
      {"pairs", {.kind = softmax_pair, .scale = 0.35}},
      {"own", {.kind = softmax, .stabiliser = Stabiliser::own, .scale = 0.35, .eps = 1e-4}},
      {"shared", {.kind = softmax, .stabiliser = Stabiliser::shared, .scale = 0.35, .eps = 1e-4}},
      {"shared pairs",
       {.kind = softmax_pair, .stabiliser = Stabiliser::shared, .scale = 0.35, .eps = 1e-2}},
      {"constant",
       {.kind = softmax, .stabiliser = Stabiliser::constant, .scale = 0.35, .eps = 1e-2}},
      {"relu", {.kind = relu_random, .scale = 0.35, .offset = 1e-3}},
  };
  for (const auto& [name, how] : maps) {
    for (const OpCase& op_case : {wide_case(name, {2, 3, 150, 64}, {256, 64}, how),
                                  wide_case(name, {1, 4, 65, 64}, {2, 104, 64}, how),
                                  wide_case(name, {1, 2, 130, 24}, {40, 24}, how),
                                  wide_case(name, {1, 2, 70, 80}, {72, 80}, how)})
      check_on_cuda(op_case);
  }
}
