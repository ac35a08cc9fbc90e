// model.interpolate_positions: sequences longer than the learned positions.

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::ModelConfig;

namespace {

ModelConfig with_positions(int rows, bool interpolate = true) {
  ModelConfig config = gpt2_style();
  config.block_size = rows;
  config.interpolate_positions = interpolate;
  return config;
}

std::vector<double> logits_of(Lm& lm, const models::DecoderInput& in) {
  return lm.model->logits(lm.ctx, in).value().values();
}

}  // namespace

TEST_CASE("learned positions are stretched over a longer sequence by linear interpolation") {
  Lm four(with_positions(4)), ten(with_positions(10));
  const nn::Parameter &few = four.parameter("wpe.weight"), &many = ten.parameter("wpe.weight");
  for (std::int64_t i = 0; i < 10; ++i) {
    const double at = std::clamp((static_cast<double>(i) + 0.5) * 4 / 10 - 0.5, 0.0, 3.0);
    const auto low = static_cast<std::int64_t>(at), high = std::min<std::int64_t>(low + 1, 3);
    for (std::int64_t c = 0; c < 12; ++c) {
      const double a = few.master.data<float>()[low * 12 + c],
                   b = few.master.data<float>()[high * 12 + c];
      many.master.data<float>()[i * 12 + c] =
          static_cast<float>(a + (at - static_cast<double>(low)) * (b - a));
    }
  }
  const models::DecoderInput in{.ids = ids(2, 10, 11)};
  const std::vector<double> stretched = logits_of(four, in), expected = logits_of(ten, in);
  REQUIRE(stretched.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(std::abs(stretched[i] - expected[i]) < 1e-5);
}

TEST_CASE("sequences that the learned positions reach see them as they are") {
  Lm plain(with_positions(16, false)), interpolating(with_positions(16));
  for (const std::int64_t n : {5, 16}) {
    const models::DecoderInput in{.ids = ids(2, n, 11)};
    CHECK(logits_of(plain, in) == logits_of(interpolating, in));
  }
}

TEST_CASE("stretched positions follow the weights, and lengths may come in any order") {
  Lm lm(with_positions(4));
  const models::DecoderInput nine{.ids = ids(1, 9, 11)}, seven{.ids = ids(1, 7, 11)};
  const std::vector<double> first = logits_of(lm, nine), other = logits_of(lm, seven);
  CHECK(logits_of(lm, nine) == first);
  CHECK(logits_of(lm, seven) == other);
  lm.parameter("wpe.weight").master.data<float>()[0] += 1;
  CHECK(logits_of(lm, nine) != first);
}

TEST_CASE("stretched positions are neither trained nor decoded with") {
  Lm lm(with_positions(4));
  const models::DecoderInput in{.ids = ids(1, 5, 11)};
  CHECK_THROWS_AS(lm.backward(in, ids(1, 5, 11), 5), ShapeError);
  const auto state = lm.model->start(lm.ctx, 1, 8);
  CHECK_THROWS_AS(logits_of(lm, {.ids = ids(1, 5, 11), .state = state.get()}), ShapeError);
}
