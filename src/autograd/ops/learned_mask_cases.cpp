#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/learned_mask.h"
#include "kernels/basic.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;
using MaskKind = MaskRule::Kind;

Var wide(Ctx& c, const Var& x) {
  return cast(c, x, acc_of(x.dtype()));
}

Tensor temperature(Ctx& c, DType dtype) {
  Tensor tau = c.empty({1}, dtype, "temperature");
  FOVEA_ON(c.device, fill(c.stream.ref(), tau.view(), 0.6));
  return tau;
}

// Inputs: w, g, m, u, and perhaps the logits' shift. u lies away from where hard concrete clips.
OpCase mask_case(std::string name, MaskRule rule, Shape shape, std::int64_t shifts = 0) {
  std::vector<CaseInput> inputs{parameter(shape),
                                parameter(shape),
                                {shape, Kind::mask},
                                {shape, Kind::real, 0.3, 0.7, false}};
  if (shifts > 0) inputs.push_back(parameter({shifts}));
  return {.name = std::move(name), .inputs = inputs, .run = [rule](Ctx& c, Inputs in) {
            LearnedMask mask;
            mask.w = wide(c, in[0]);
            mask.g = wide(c, in[1]);
            mask.m = in[2].value();
            mask.u = cast(c, in[3].detached(), DType::f32).value();
            mask.tau = temperature(c, mask.w.dtype());
            mask.rule = rule;
            if (in.size() > 4) mask.shift = wide(c, in[4]);
            return std::vector{masked_matrix(c, mask)};
          }};
}

std::vector<OpCase> mask_cases() {
  const Shape one{1, 4, 3}, two{2, 3, 5};
  return {
      mask_case("relaxed", {MaskKind::concrete, true}, one),
      mask_case("relaxed, shifted for each of four", {MaskKind::concrete, true}, two, 4),
      mask_case("hard concrete", {MaskKind::hard_concrete, true}, two),
      mask_case("hard concrete at test time", {MaskKind::hard_concrete, false}, one),
      mask_case("magnitude", {MaskKind::magnitude, true}, one),
  };
}

std::vector<OpCase> logistic_cases() {
  return {
      {.name = "plain",
       .inputs = {real({2, 3, 4}, 3)},
       .run = [](Ctx& c, Inputs in) { return std::vector{logistic(c, wide(c, in[0]))}; }},
      {.name = "shifted, at a temperature",
       .inputs = {parameter({2, 3, 4}), parameter({4})},
       .run =
           [](Ctx& c, Inputs in) {
             const Var x = wide(c, in[0]);
             return std::vector{logistic(c, x, wide(c, in[1]), temperature(c, x.dtype()), -2.4)};
           }},
  };
}

OpSpec spec(std::string_view name, std::string_view summary, std::vector<OpCase> (*list)()) {
  return {name,
          summary,
          "src/autograd/ops/learned_mask.h",
          "src/autograd/ops/learned_mask.cpp",
          "src/kernels/learned_mask.h",
          "src/kernels/cpu/learned_mask.cpp",
          "src/kernels/cuda/learned_mask.cu",
          list};
}

}  // namespace

OpList learned_mask_ops();
OpList learned_mask_ops() {
  return {spec("logistic", "a sigmoid, shifted for each matrix", logistic_cases),
          spec("masked_matrix", "a matrix under a learned mask", mask_cases)};
}

}  // namespace fovea
