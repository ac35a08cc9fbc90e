// Plans as methods make them: what flash_attention does with one, and what is refused.

#include "autograd/ops/attention_plan.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "autograd/ops/attention.h"
#include "autograd/tape.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr std::int64_t kTokens = 150, kBlock = 32, kBlocks = (kTokens + kBlock - 1) / kBlock;

// BigBird's shape in small: a window of blocks, the first block global, one listed block a row.
PlanRule blocks() {
  PlanRule r;
  r.rule.block = kBlock;
  r.rule.block_left = 1;
  r.rule.first_keys = kBlock;
  std::vector<double> list;
  for (std::int64_t b = 0; b < kBlocks; ++b)
    list.push_back(b < 2 ? -1 : static_cast<double>((b * 7) % (b - 1)));
  r.list = Tensor::from(list, {1, kBlocks, 1}, DType::i32);
  return r;
}

bool seen(std::int64_t i, std::int64_t j) {
  const std::int64_t row = i / kBlock, column = j / kBlock;
  const bool listed = row >= 2 && column == row * 7 % (row - 1);
  return j <= i && (column == 0 || column == row || column == row - 1 || listed);
}

PlanShape shape() {
  return {2, 4, 2, kTokens, kTokens, true};
}

}  // namespace

TEST_CASE("flash_attention with a plan has the values and gradients of the masked dense op") {
  Bench bench;
  const Tensor q = bench.drawn("q", {2, 4, kTokens, 8}), k = bench.drawn("k", {2, 2, kTokens, 8}),
               v = bench.drawn("v", {2, 2, kTokens, 12}),
               seed = bench.drawn("seed", {2, 4, kTokens, 12});
  std::vector<double> hidden, valid;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j)
      hidden.push_back(seen(i, j) ? 0 : -std::numeric_limits<double>::infinity());
  }
  for (std::int64_t t = 0; t < 2 * kTokens; ++t)
    valid.push_back(t % kTokens < kTokens - 20 * (t / kTokens) ? 1 : 0);
  std::vector<std::vector<double>> results[3];
  for (int kind = 0; kind < 3; ++kind) {  // dense, a plan of the pattern, a plan of masks too
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(q), y = leaf(k), z = leaf(v);
    AttentionMask mask;
    mask.causal = true;
    mask.key_valid = Tensor::from(valid, {2, kTokens}, DType::u8);
    Var bias;
    if (kind == 0) {
      bias = Var(Tensor::from(hidden, {1, 1, kTokens, kTokens}, DType::f32));
    } else {
      const auto plan =
          std::make_shared<AttentionPlan>(shape(), std::vector<PlanRule>{blocks()}, kCpu,
                                          bench.stream, Tensor{}, Tensor{}, kind == 2);
      plan->build(bench.ctx, mask);
      mask.plan = plan;
    }
    const AttentionResult out = kind == 0 ? reference_attention(bench.ctx, x, y, z, bias, mask)
                                          : flash_attention(bench.ctx, x, y, z, bias, mask);
    tape.backward(bench.ctx, out.o, seed);
    results[kind] = {out.o.value().values(), x.grad()->value.values(), y.grad()->value.values(),
                     z.grad()->value.values()};
  }
  for (int kind = 1; kind < 3; ++kind) {
    for (std::size_t r = 0; r < results[0].size(); ++r) {
      double error = 0;
      for (std::size_t e = 0; e < results[0][r].size(); ++e)
        error = std::max(error, std::fabs(results[0][r][e] - results[kind][r][e]));
      CHECK(error <= 1e-5);
    }
  }
}

TEST_CASE("a cache builds a shape's plan once, and on meta counts its pairs") {
  Bench bench;
  int asked = 0;
  const auto rules = [&](const PlanShape&) {
    ++asked;
    return std::vector<PlanRule>{blocks()};
  };
  PlanCache cache;
  const auto one = cache.get(bench.ctx, shape(), rules);
  CHECK(cache.get(bench.ctx, shape(), rules) == one);
  CHECK(asked == 1);
  PlanShape longer = shape();
  longer.causal = false;
  CHECK(cache.get(bench.ctx, longer, rules) != one);
  double pairs = 0;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j)
      pairs += seen(i, j) ? 1 : 0;
  }
  CHECK(one->count_pairs() == pairs);
  Stream stream(kMeta);
  Ctx meta{.device = kMeta, .stream = stream, .activations = bench.ctx.activations};
  CHECK(cache.get(meta, shape(), rules)->view().pairs == pairs);
}

TEST_CASE("a plan knows its band where every rule is one window alone") {
  Stream stream(kCpu);
  const auto band = [&](bool causal, std::vector<TileRule> rules, bool ordered = false) {
    PlanShape s = shape();
    s.causal = causal;
    std::vector<PlanRule> all;
    for (const TileRule& rule : rules)
      all.push_back({.rule = rule});
    std::vector<double> tokens;
    for (std::int64_t t = 0; t < kTokens; ++t)
      tokens.push_back(static_cast<double>(t));
    const Tensor order = ordered ? Tensor::from(tokens, {1, 1, kTokens}, DType::i32) : Tensor();
    return AttentionPlan(s, all, kCpu, stream, order, order).view().band;
  };
  TileRule back, both, other, first, steps, not_own;
  for (TileRule* rule : {&back, &both, &other, &first, &steps, &not_own})
    rule->left = 30;
  both.right = 30;
  other.left = 31;
  first.first_keys = 1;
  steps.dilation = 2;
  not_own.hides_own = true;
  CHECK(band(true, {back}) == 30);
  CHECK(band(true, {both}) == 30);
  CHECK(band(true, {back, both}) == 30);
  CHECK(band(false, {both}) == 30);
  CHECK(band(false, {back}) == -1);
  CHECK(band(true, {back, other}) == -1);
  CHECK(band(true, {back, first}) == -1);
  CHECK(band(true, {steps}) == -1);
  CHECK(band(true, {not_own}) == -1);
  CHECK(band(true, {TileRule()}) == -1);
  CHECK(band(true, {back}, /*ordered=*/true) == -1);
}

TEST_CASE("a plan that does not fit its call is refused, and so are rules that do not fit it") {
  Bench bench;
  const auto plan =
      std::make_shared<AttentionPlan>(shape(), std::vector<PlanRule>{blocks()}, kCpu, bench.stream);
  plan->build(bench.ctx);
  AttentionMask mask;
  mask.causal = true;
  mask.plan = plan;
  const Var q(bench.drawn("q", {2, 4, kTokens, 8})), k(bench.drawn("k", {2, 2, kTokens, 8}));
  flash_attention(bench.ctx, q, k, k, {}, mask);
  CHECK_THROWS_AS(reference_attention(bench.ctx, q, k, k, {}, mask), ShapeError);
  const Var shorter(bench.drawn("s", {2, 2, kTokens - 1, 8}));
  CHECK_THROWS_AS(flash_attention(bench.ctx, q, shorter, shorter, {}, mask), ShapeError);
  mask.causal = false;
  CHECK_THROWS_AS(flash_attention(bench.ctx, q, k, k, {}, mask), ShapeError);
  PlanRule wrong = blocks();
  wrong.list = Tensor::from(std::vector<double>(3, 0.0), {1, 3, 1}, DType::i32);
  CHECK_THROWS_AS(AttentionPlan(shape(), {wrong}, kCpu, bench.stream), ShapeError);
  CHECK_THROWS_AS(AttentionPlan(shape(), std::vector<PlanRule>(3), kCpu, bench.stream), ShapeError);
}
