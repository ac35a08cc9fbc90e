#include "models/encoder.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::Pooling;

namespace {

constexpr Pooling kPoolings[] = {Pooling::cls, Pooling::mean, Pooling::last};

// The tokens of `row`, and behind them `padding` times the id `filler`.
Tensor padded(const std::vector<double>& row, std::int64_t padding, double filler) {
  std::vector<double> ids = row;
  ids.insert(ids.end(), static_cast<std::size_t>(padding), filler);
  const auto n = static_cast<std::int64_t>(ids.size());
  return Tensor::from(ids, {1, n}, DType::i32);
}
Tensor real_of(std::int64_t real, std::int64_t padding) {
  std::vector<double> valid(static_cast<std::size_t>(real), 1.0);
  valid.insert(valid.end(), static_cast<std::size_t>(padding), 0.0);
  return Tensor::from(valid, {1, real + padding}, DType::u8);
}

std::vector<double> logits_of(Classifier& encoder, const Tensor& ids, const Tensor& valid = {}) {
  return encoder.model->logits(encoder.ctx, {.ids = ids, .key_valid = valid}).value().values();
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    CHECK(std::abs(a[i] - b[i]) <= 1e-6);  // baselines.md 21.5, fp32
}

}  // namespace

TEST_CASE("an encoder has the decoder's parameters and a head with a bias") {
  const auto encoder = models::build_encoder(encoder_style());
  const auto decoder = models::build(gpt2_style());  // its tied head is the token embedding
  std::vector<std::string> ours, theirs;
  for (const nn::Parameter* p : encoder->parameters())
    ours.push_back(p->path + p->shape.str());
  for (const nn::Parameter* p : decoder->parameters())
    theirs.push_back(p->path + p->shape.str());
  theirs.insert(theirs.end(), {"head.weight[3,12]", "head.bias[3]"});
  CHECK(ours == theirs);
}

TEST_CASE("an encoder sees both ways: the first token's state depends on the last token") {
  Classifier encoder(encoder_style(Pooling::cls));
  const std::vector<double> a = logits_of(encoder, padded({4, 1, 2, 3}, 0, 0)),
                            b = logits_of(encoder, padded({4, 1, 2, 5}, 0, 0));
  CHECK(a != b);
}

TEST_CASE("padding has no effect on an encoder, whatever ids and however much of it there is") {
  for (const Pooling pool : kPoolings) {
    Classifier encoder(encoder_style(pool));
    const std::vector<double> row = {4, 1, 2, 3, 9};
    const std::vector<double> alone = logits_of(encoder, padded(row, 0, 0));
    check_near(logits_of(encoder, padded(row, 0, 0), real_of(5, 0)), alone);
    const std::vector<double> few = logits_of(encoder, padded(row, 3, 0), real_of(5, 3));
    check_near(few, alone);
    CHECK(logits_of(encoder, padded(row, 3, 7), real_of(5, 3)) == few);  // to the bit
    check_near(logits_of(encoder, padded(row, 11, 0), real_of(5, 11)), alone);
  }
}

TEST_CASE("a sequence is classified alike in any company") {
  for (const Pooling pool : kPoolings) {
    Classifier encoder(encoder_style(pool));
    const Tensor both = Tensor::from(std::vector<double>{4, 1, 2, 3, 9, 0, 0, 5, 5, 1, 2, 3, 4, 6},
                                     {2, 7}, DType::i32);
    const Tensor valid = Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1},
                                      {2, 7}, DType::u8);
    const std::vector<double> together = logits_of(encoder, both, valid);
    check_near({together.begin(), together.begin() + 3},
               logits_of(encoder, padded({4, 1, 2, 3, 9}, 0, 0)));
    check_near({together.begin() + 3, together.end()},
               logits_of(encoder, padded({5, 5, 1, 2, 3, 4, 6}, 0, 0)));
  }
}

TEST_CASE("the poolings read what they say, and one token is all of them") {
  Classifier cls(encoder_style(Pooling::cls)), mean(encoder_style(Pooling::mean)),
      last(encoder_style(Pooling::last));  // equal seeds and paths: equal weights
  const Tensor one = padded({7}, 0, 0), two = padded({7, 2}, 0, 0);
  CHECK(logits_of(cls, one) == logits_of(mean, one));
  CHECK(logits_of(cls, one) == logits_of(last, one));
  const std::vector<double> first = logits_of(cls, two), middle = logits_of(mean, two),
                            end = logits_of(last, two);
  CHECK(first != end);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(std::abs(2 * middle[i] - first[i] - end[i]) < 1e-5);  // the head is linear, its bias zero
}

TEST_CASE("an encoder's loss is summed over the labels that count") {
  Classifier encoder(encoder_style());
  const models::TransformerInput in{.ids = ids(3, 6, 11)};
  const auto loss = [&](std::vector<double> labels) {
    return encoder.loss(in, Tensor::from(labels, {3}, DType::i32));
  };
  CHECK(std::abs(loss({0, 2, 1}) - loss({0, -1, -1}) - loss({-1, 2, -1}) - loss({-1, -1, 1})) <
        1e-5);
  CHECK_THROWS_WITH_AS(loss({0, 3, 1}), doctest::Contains("but must be -1 (ignored) or in [0, 3)"),
                       IoError);
}

TEST_CASE("an encoder is refused where its sizes or its kind are not an encoder's") {
  models::ModelConfig config = encoder_style();
  config.classes = 0;
  CHECK_THROWS_WITH_AS(models::build_encoder(config), doctest::Contains("model.classes is 0"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::build_encoder(gpt2_style()),
                       "model.kind is decoder, but must be encoder", ConfigError);
  CHECK_THROWS_WITH_AS(models::build(encoder_style()), "model.kind is encoder, but must be decoder",
                       ConfigError);
  Classifier encoder(encoder_style());
  CHECK_THROWS_WITH_AS(logits_of(encoder, ids(1, 17, 11)),
                       doctest::Contains("encoder: 17 tokens, but learned positions end at 16"),
                       ShapeError);
}

TEST_CASE("an encoder's useful FLOPs count its head once a sequence, and all pairs of tokens") {
  const auto model = models::build_encoder(encoder_style());
  const double blocks = 2.0 * 12 * 12 * 12, head = 3 * 12;
  CHECK(static_cast<double>(model->block_parameters()) == blocks);
  const double attention = 2 * (2 + 5) * 2 * (16.0 * 16) * 12;
  CHECK(models::train_flops(*model, 5, 16).useful ==
        doctest::Approx(5 * (6 * (blocks * 16 + head) + attention)).epsilon(1e-12));
}
