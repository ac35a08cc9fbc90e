// Buckets and orders of tokens, told by the words of baselines.md 15.2.

#include "autograd/ops/lsh.h"

#include <doctest/doctest.h>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/low_rank.h"
#include "autograd/ops/round_attention.h"
#include "autograd/require.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("a token's bucket is the largest of its products and their opposites, ties going low") {
  Bench bench;
  // Three columns; the sample uses ceil(5 / (2 bucket_size)) of them.
  const Tensor rotations =
      Tensor::from(std::vector<double>{1, 0, 9, 0, 1, 9}, {1, 2, 3}, DType::f32);
  const Tensor x =
      Tensor::from(std::vector<double>{3, 1, -3, 1, 1, -4, 2, 2, 0, 0}, {1, 1, 5, 2}, DType::f32);
  const auto buckets = [&](std::int64_t bucket_size, const Tensor& valid = {}) {
    return hash_tokens(bench.ctx, x, rotations, valid, bucket_size).bucket.values();
  };
  CHECK(buckets(2) == std::vector<double>{0, 2, 3, 0, 0});  // two columns
  CHECK(buckets(3) == std::vector<double>{0, 1, 0, 0, 0});  // one
  CHECK(buckets(1) == std::vector<double>{2, 5, 5, 2, 0});  // all three
  // Four valid tokens of bucket size 2 use one column; invalid ones go to an extra bucket.
  const Tensor valid = Tensor::from(std::vector<double>{1, 1, 1, 0, 1}, {1, 5}, DType::u8);
  CHECK(buckets(2, valid) == std::vector<double>{0, 1, 0, 6, 0});
}

TEST_CASE("tokens are sorted by bucket, and those of one bucket stay in their order") {
  Bench bench;
  const Tensor rotations = bench.drawn("rotations", {3, 8, 4});
  const Tensor x = bench.drawn("x", {2, 3, 150, 8});
  const LshTables t = hash_tokens(bench.ctx, x, rotations, {}, 20);
  const std::vector<double> bucket = t.bucket.values(), order = t.order.values(),
                            slot = t.slot.values();
  for (std::size_t row = 0; row < 3 * 2 * 3; ++row) {
    const auto at = [&](const std::vector<double>& x_of, std::size_t i) {
      return x_of[row * 150 + i];
    };
    for (std::size_t s = 0; s < 150; ++s) {
      const auto token = static_cast<std::size_t>(at(order, s));
      CHECK(at(slot, token) == static_cast<double>(s));
      CHECK(at(bucket, token) < 8);
      if (s == 0) continue;
      const auto before = static_cast<std::size_t>(at(order, s - 1));
      const bool sorted = at(bucket, before) < at(bucket, token) ||
                          (at(bucket, before) == at(bucket, token) && before < token);
      CHECK(sorted);
    }
  }
}

TEST_CASE("rotations of another width are refused") {
  Bench bench;
  const Tensor x = bench.drawn("x", {1, 1, 5, 8});
  CHECK_THROWS_AS(hash_tokens(bench.ctx, x, bench.drawn("r", {2, 7, 4}), {}, 2), ShapeError);
  CHECK_THROWS_AS(hash_tokens(bench.ctx, x, bench.drawn("r", {2, 8, 4}),
                              Tensor::from(std::vector<double>(4, 1.0), {1, 4}, DType::u8), 2),
                  ShapeError);
}

TEST_CASE("rounds of attention are flash_attention round by round, merged") {
  for (const std::int64_t batch : {1, 2}) {
    CAPTURE(batch);
    Bench bench;
    constexpr std::int64_t kHeads = 2, kTokens = 150, kCount = 3;
    const Tensor q = bench.drawn("q", {batch, kHeads, kTokens, 8}),
                 k = bench.drawn("k", {batch, kHeads, kTokens, 8}),
                 v = bench.drawn("v", {batch, kHeads, kTokens, 4});
    std::vector<double> marks(static_cast<std::size_t>(batch * kTokens), 1.0);
    for (std::size_t i = 0; i < marks.size(); i += 7)
      marks[i] = 0;
    const Tensor valid = Tensor::from(marks, {batch, kTokens}, DType::u8);
    const LshTables t = hash_tokens(bench.ctx, q, bench.drawn("r", {kCount, 8, 4}), valid, 20);
    PlanRule rule;
    rule.rule.in_slots = rule.rule.hides_own = true;
    rule.rule.block = 20;
    rule.rule.block_left = 1;
    const auto plan_of = [&](const Tensor& order) {
      const auto plan = std::make_shared<AttentionPlan>(
          PlanShape{order.size(0), kHeads, kHeads, kTokens, kTokens, true}, std::vector{rule}, kCpu,
          bench.ctx.stream, order, order);
      plan->build(bench.ctx);
      return plan;
    };
    AttentionMask mask;
    mask.causal = true;
    mask.key_valid = valid;
    AttentionRounds rounds;
    rounds.count = kCount;
    rounds.plan = plan_of(t.order.reshape({kCount * batch, kHeads, kTokens}));
    rounds.alone_lse = -2.0;
    const AttentionResult got = round_attention(bench.ctx, Var(q), Var(k), Var(v), mask, rounds);
    std::vector<AttentionResult> parts;
    for (std::int64_t r = 0; r < kCount; ++r) {
      mask.plan = plan_of(t.round_order(r));
      parts.push_back(flash_attention(bench.ctx, Var(q), Var(k), Var(v), {}, mask));
    }
    const AttentionResult want = merge_attention(bench.ctx, parts, Var(v), valid, -2.0);
    CHECK(contiguous(bench.ctx, got.o.value()).values() ==
          contiguous(bench.ctx, want.o.value()).values());
    CHECK(got.lse.value().values() == want.lse.value().values());
  }
}
