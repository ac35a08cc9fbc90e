#include "attention/linear/running_state.h"

#include <doctest/doctest.h>

#include "attention/kernel_method.h"
#include "attention/trial_method.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("samples with prompts of different lengths decode as if alone") {
  for (const char* name : {"linear", "performer", "cosformer", "rfa"}) {
    CAPTURE(name);
    const Trial trial =
        method(name, std::string(name) == "rfa" ? "{features: 8, pool: 2}" : "", true, 12);
    const Tokens tokens = draw_tokens(trial);
    TrialMethod alone(trial);
    Ctx& ctx = alone.ctx;
    alone.method().before_step(ctx, {});
    const auto cut = [&](std::int64_t sample, std::int64_t from, std::int64_t to) {
      AttentionInput in;
      const auto part = [&](const Tensor& x) {
        return Var((sample < 0 ? x : x.slice(0, sample, sample + 1)).slice(2, from, to));
      };
      in.q = part(tokens.q);
      in.k = part(tokens.k);
      in.v = part(tokens.v);
      return in;
    };
    const auto both = alone.method().start(ctx, 2, 12);
    AttentionInput prompt = cut(-1, 0, 6);
    prompt.key_valid =
        Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 6}, DType::u8);
    const Tensor first = alone.method().step(ctx, *both, prompt).o.value();
    for (const double value : first.slice(0, 1, 2).slice(2, 4, 6).values())
      CHECK(value == 0);
    const Tensor second = alone.method().step(ctx, *both, cut(-1, 6, 7)).o.value();
    const auto single = alone.method().start(ctx, 1, 12);
    const Tensor own_first = alone.method().step(ctx, *single, cut(1, 0, 4)).o.value();
    const Tensor own_second = alone.method().step(ctx, *single, cut(1, 6, 7)).o.value();
    CHECK(distance(first.slice(0, 1, 2).slice(2, 0, 4), own_first) < 1e-12);
    CHECK(distance(second.slice(0, 1, 2), own_second) < 1e-12);
    CHECK(both->length() == 7);
    const std::int64_t beams[] = {1, 1, 0};
    both->reorder(ctx, beams);
    CHECK(both->length() == 7);
    CHECK(dynamic_cast<const RunningState&>(*both).lengths() == std::vector<std::int64_t>{5, 5, 7});
  }
}
