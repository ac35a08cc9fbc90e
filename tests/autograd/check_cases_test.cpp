// The checks of op_registry.h must be able to fail.

#include <doctest/doctest.h>

#include "autograd/op_registry.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/tape.h"
#include "kernels/basic.h"

using namespace fovea;

namespace {

bool all_passed(const std::vector<CheckResult>& results) {
  bool out = !results.empty();
  for (const CheckResult& result : results)
    out = out && result.passed();
  return out;
}

// factor x, whose backward multiplies by `slope` instead.
std::vector<Var> scaled(Ctx& ctx, const Var& x, double factor, double slope) {
  const Tensor y = ctx.empty_like(x.value());
  FOVEA_ON(ctx.device, scale_forward(ctx.stream.ref(), y.view(), x.view(), factor));
  auto backward = [gx = x.grad(), slope](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dx = c.empty_like(dout[0]);
    FOVEA_ON(c.device, scale_forward(c.stream.ref(), dx.view(), dout[0].view(), slope));
    give(c, gx, dx);
  };
  return {finish(ctx, "scaled", y, {x.grad()}, std::move(backward))};
}

OpCase scaled_case(double factor, double slope) {
  return {.name = "scaled", .inputs = {{{2, 3}}}, .run = [=](Ctx& c, std::span<const Var> in) {
            return scaled(c, in[0], factor, slope);
          }};
}

}  // namespace

TEST_CASE("the gradient check passes a right gradient and fails one wrong by 3e-6") {
  CHECK(all_passed(check_gradient(scaled_case(2, 2))));
  CHECK(!all_passed(check_gradient(scaled_case(2, 2 + 6e-6))));
}

TEST_CASE("the gradient check fails a gradient that never comes") {
  OpCase silent = scaled_case(2, 2);
  silent.run = [](Ctx& c, std::span<const Var> in) {
    const Tensor y = scaled(c, in[0], 2, 2)[0].value();
    return std::vector{
        finish(c, "silent", y, {in[0].grad()}, [](Ctx&, std::span<const Tensor>) {})};
  };
  CHECK(!all_passed(check_gradient(silent)));
}

TEST_CASE("the gradient check covers parameters, computed weights and every differentiable input") {
  OpCase op_case{.name = "linear",
                 .inputs = {{{2, 3}},
                            {{4, 3}, CaseInput::Kind::parameter},
                            {{4}, CaseInput::Kind::real, -1, 1, false}},
                 .run = [](Ctx& c, std::span<const Var> in) {
                   CHECK(!in[2].requires_grad());
                   return std::vector{linear(c, in[0], in[1], in[2])};
                 }};
  const std::vector<CheckResult> results = check_gradient(op_case);
  CHECK(results.size() == 2);
  CHECK(all_passed(results));
}

TEST_CASE("the composition check fails a wrong value and a wrong gradient") {
  for (const auto& [factor, slope, right] :
       {std::tuple{2.0, 2.0, true}, {2.001, 2.0, false}, {2.0, 2.001, false}}) {
    OpCase op_case = scaled_case(factor, slope);
    op_case.composition = [](Ctx& c, std::span<const Var> in) {
      return std::vector{scale(c, in[0], 2)};
    };
    CHECK(all_passed(check_composition(op_case, Precision::fp32)) == right);
    CHECK(all_passed(check_composition(op_case, Precision::fp64)) == right);
  }
  CHECK(check_composition(scaled_case(2, 2), Precision::fp64).empty());
}

TEST_CASE("the precision check fails an op that loses digits") {
  OpCase lossy = scaled_case(2, 2);
  for (const Precision precision :
       {Precision::fp32, Precision::bf16_mixed, Precision::fp16_mixed}) {
    CHECK(all_passed(check_precision(lossy, precision)));
  }
  lossy.run = [](Ctx& c, std::span<const Var> in) {
    const bool exact = c.precision == Precision::fp64;
    return std::vector{exact ? in[0] : cast(c, cast(c, in[0], DType::bf16), in[0].dtype())};
  };
  CHECK(!all_passed(check_precision(lossy, Precision::fp32)));
  CHECK(all_passed(check_precision(lossy, Precision::bf16_mixed)));
}

TEST_CASE("draws do not depend on the other inputs' sizes, and ids and masks have their ranges") {
  OpCase op_case{
      .name = "draws",
      .inputs = {{{64}, CaseInput::Kind::ids, -1, 3, false}, {{64}, CaseInput::Kind::mask}, {{2}}},
      .run = [](Ctx&, std::span<const Var> in) {
        CHECK(in[0].dtype() == DType::i32);
        CHECK(in[1].dtype() == DType::u8);
        double low = 9, high = -9, ones = 0;
        for (const double id : in[0].value().values()) {
          low = std::min(low, id);
          high = std::max(high, id);
        }
        for (const double m : in[1].value().values())
          ones += m;
        CHECK(low == -1);
        CHECK(high == 2);
        CHECK(ones > 24);
        CHECK(ones < 64);
        return std::vector{in[2]};
      }};
  check_precision(op_case, Precision::fp32);
}
