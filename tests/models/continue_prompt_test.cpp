#include <algorithm>
#include <limits>
#include <tuple>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "core/error.h"
#include "models/generate.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::ModelConfig;
using models::Sampler;

namespace {

using Ids = std::vector<std::int32_t>;

Ids continued(Lm& lm, const Ids& prompt, int new_tokens,
              const models::SamplingConfig& sampling = {.temperature = 0}) {
  Ids out;
  models::continue_prompt(lm.ctx, *lm.model, prompt, Sampler(sampling, 3, 0), new_tokens,
                          [&](std::int32_t id) {
                            out.push_back(id);
                            return true;
                          });
  return out;
}

// The most probable token behind the last `sight` ids, by a full forward pass.
std::int32_t best_after(Lm& lm, const Ids& ids, std::size_t sight) {
  const std::size_t n = std::min(sight, ids.size());
  Tensor seen = Tensor::empty({1, static_cast<std::int64_t>(n)}, DType::i32, kCpu);
  std::copy_n(ids.end() - static_cast<std::ptrdiff_t>(n), n, seen.data<std::int32_t>());
  const std::vector<double> logits = lm.model->logits(lm.ctx, {.ids = seen}).value().values();
  const auto last = logits.end() - 11;
  return static_cast<std::int32_t>(std::max_element(last, logits.end()) - last);
}

}  // namespace

TEST_CASE("a prompt continued at temperature zero is greedy decoding") {
  for (const ModelConfig& config : {gpt2_style(), llama_style(), alibi_style()}) {
    Lm lm(config);
    const Ids prompt{1, 2, 3};
    const Ids greedy = models::greedy(lm.ctx, *lm.model, std::vector<Ids>{prompt}, 12)[0];
    CHECK(continued(lm, prompt, 12) == greedy);
    CHECK(continued(lm, prompt, 12, {.top_k = 1}) == greedy);
  }
}

TEST_CASE("behind the last learned position each token sees the window before it") {
  Lm lm(gpt2_style());  // block_size 16
  for (const std::size_t length : {3u, 16u, 20u}) {
    Ids ids;
    for (std::size_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(i * i % 11));
    const Ids got = continued(lm, ids, 18);
    REQUIRE(got.size() == 18);
    for (const std::int32_t id : got) {
      CHECK(id == best_after(lm, ids, 16));
      ids.push_back(id);
    }
  }
}

TEST_CASE("behind the last token that an attention takes each token sees the window before it") {
  for (const auto& [kind, options, sight] :
       {std::tuple("cosformer", "n_ref: 20", 20u), std::tuple("cosformer", "n_ref: max_len", 16u),
        std::tuple("cosformer", "n_ref: current", 99u),
        std::tuple("linformer", "{causal_mode: block, block: 4, block_rank: 2, max_len: 20}", 20u),
        std::tuple("bigbird", "{block: 4, max_len: 20}", 20u)}) {
    CAPTURE(kind);
    CAPTURE(options);
    ModelConfig config = gpt2_style();
    config.position = models::Position::rope;
    const config::Node complete = config::complete(config::parse(options, "test"),
                                                   attention::find_attention(kind)->options, "");
    config.attention.assign(2, {kind, complete});
    Lm lm(config);
    Ids ids{3, 1, 4};
    for (const std::int32_t id : continued(lm, ids, 25)) {
      CHECK(id == best_after(lm, ids, sight));
      ids.push_back(id);
    }
    CHECK(ids.size() == 28);
  }
}

TEST_CASE("rotary positions have no end") {
  Lm lm(llama_style());
  CHECK(continued(lm, {1, 2}, 40) ==
        models::greedy(lm.ctx, *lm.model, std::vector<Ids>{{1, 2}}, 40)[0]);
}

TEST_CASE("sampling gives the same ids with any number of threads") {
  Lm one(llama_style());
  Lm three(llama_style(), Precision::fp32, {}, kCpu, 3);
  const models::SamplingConfig sampling{.temperature = 1.3, .top_p = 0.95};
  CHECK(continued(one, {4}, 30, sampling) == continued(three, {4}, 30, sampling));
}

TEST_CASE("the receiver ends the continuation") {
  Lm lm(gpt2_style());
  int taken = 0;
  models::continue_prompt(lm.ctx, *lm.model, Ids{1}, Sampler({}, 0, 0), 10,
                          [&](std::int32_t) { return ++taken < 4; });
  CHECK(taken == 4);
  CHECK(continued(lm, {1}, 0).empty());
  CHECK_THROWS_WITH_AS(continued(lm, {}, 3), "generate: the prompt has no token", ShapeError);
}

TEST_CASE("logits that are not finite end the continuation with the token's number") {
  Lm lm(gpt2_style());
  Tensor& table = lm.parameter("wte.weight").master;
  table.data<float>()[5 * 12] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(continued(lm, {1}, 3),
                       "generate: new token 0: the logit of token 5 is not a number", NumericError);
}
