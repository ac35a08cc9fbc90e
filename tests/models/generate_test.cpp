#include "models/generate.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::Cache;
using models::Continuation;
using models::ModelConfig;

namespace {

constexpr double kLogits = 1e-5;  // absolute, of order 1: the public promise

std::vector<ModelConfig> styles() {
  ModelConfig sinusoidal = gpt2_style();
  sinusoidal.position = models::Position::sinusoidal;
  return {gpt2_style(), llama_style(), alibi_style(), sinusoidal};
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  REQUIRE(x.size() == y.size());
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

using Ids = std::vector<std::vector<std::int32_t>>;

}  // namespace

TEST_CASE("greedy decoding with the cache gives the ids of full forward passes") {
  const Ids prompts{{1, 2, 3}, {7, 7, 4}, {9}, {10, 0, 5}};
  for (const ModelConfig& config : styles()) {
    Lm lm(config);
    const Ids cached = models::greedy(lm.ctx, *lm.model, prompts, 12, Cache::use);
    CHECK(cached == models::greedy(lm.ctx, *lm.model, prompts, 12, Cache::none));
    REQUIRE(cached.size() == 4);
    for (const auto& row : cached)
      CHECK(row.size() == 12);
  }
}

TEST_CASE("logits with the cache are within 1e-5 of full forward passes") {
  for (const ModelConfig& config : styles()) {
    Lm lm(config);
    const Tensor all = ids(2, 14, 11);
    Continuation cached(lm.ctx, *lm.model, 2, 14, Cache::use);
    REQUIRE(cached.cached());
    std::int64_t at = 0;
    for (const std::int64_t n :
         {5, 1, 1, 3, 1, 2, 1}) {  // prefill, single tokens, and several at once
      const Tensor next = all.slice(1, at, at + n);
      at += n;
      const Tensor got = cached.append(lm.ctx, next.to(kCpu, lm.stream));
      const Tensor whole =
          lm.model->logits(lm.ctx, {.ids = all.slice(1, 0, at).to(kCpu, lm.stream)}).value();
      CHECK(got.shape() == Shape{2, 11});
      CHECK(largest_difference(
                got, whole.slice(1, at - 1, at).to(kCpu, lm.stream).reshape({2, 11})) < kLogits);
    }
  }
}

TEST_CASE("a prompt's continuation does not depend on its neighbours") {
  Lm lm(llama_style());
  const Ids together = models::greedy(lm.ctx, *lm.model, Ids{{1, 2, 3}, {4, 5}, {8, 8, 8}}, 6);
  CHECK(together[1] == models::greedy(lm.ctx, *lm.model, Ids{{4, 5}}, 6)[0]);
  CHECK(together[2] == models::greedy(lm.ctx, *lm.model, Ids{{8, 8, 8}}, 6)[0]);
}

TEST_CASE("generation ignores training mode and records nothing") {
  ModelConfig config = gpt2_style();
  Lm plain(config);
  config.dropout = 0.5;
  Lm lm(config);
  Tape tape;
  lm.ctx.tape = &tape;
  lm.ctx.training = true;
  CHECK(models::greedy(lm.ctx, *lm.model, Ids{{1, 2}}, 5) ==
        models::greedy(plain.ctx, *plain.model, Ids{{1, 2}}, 5));
  CHECK(tape.size() == 0);
}

TEST_CASE("an empty prompt, a full cache and too many positions are refused") {
  Lm lm(gpt2_style());
  CHECK_THROWS_WITH_AS(models::greedy(lm.ctx, *lm.model, Ids{{1}, {}}, 2),
                       "generate: prompt 1 has no token", ShapeError);
  CHECK_THROWS_WITH_AS(
      models::greedy(lm.ctx, *lm.model, Ids{{1}}, 16),
      "generate: up to 17 tokens, but learned positions end at 16 (model.block_size)", ShapeError);
  Continuation short_one(lm.ctx, *lm.model, 1, 3, Cache::use);
  short_one.append(lm.ctx, ids(1, 2, 11));
  CHECK_THROWS_WITH_AS(short_one.append(lm.ctx, ids(1, 2, 11)),
                       "generate: ids [1,2] behind 2 tokens of at most 3", ShapeError);
}

TEST_CASE("no new tokens are no work") {
  Lm lm(gpt2_style());
  CHECK(models::greedy(lm.ctx, *lm.model, Ids{{1, 2}}, 0) == Ids{{}});
}
