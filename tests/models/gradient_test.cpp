// Central differences of whole models in f64, on a sample of every parameter's entries.

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::ModelConfig;

namespace {

// Errors of a central difference of step h: h^2 f''' / 6 (1e-10 x 1e2) and 2e-16 |loss| / h (1e-9).
constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-6;  // of the parameter's largest sampled derivative, at least 1e-2

template <class Model>
void check_gradient(Bound<Model>& bound, const models::TransformerInput& in,
                    const Tensor& targets) {
  // Norms and biases leave their even start, so that every factor of the chain is seen.
  for (const optim::Segment& s : bound.store.segments()) {
    double* w = s.parameter->master.template data<double>();
    for (std::int64_t i = 0; i < s.size; ++i)
      w[i] += 0.1 * std::sin(static_cast<double>(i + s.begin));
  }
  bound.backward(in, targets, 1);
  for (const optim::Segment& s : bound.store.segments()) {
    double* w = s.parameter->master.template data<double>();
    const double* got = s.parameter->grad->value.template data<double>();
    double error = 0, largest = 1e-2;
    const std::int64_t stride = std::max<std::int64_t>(1, s.size / 7);
    for (std::int64_t i = 0; i < s.size; i += stride) {
      const double kept = w[i];
      w[i] = kept + kStep;
      const double above = bound.loss(in, targets);
      w[i] = kept - kStep;
      const double below = bound.loss(in, targets);
      w[i] = kept;
      const double numeric = (above - below) / (2 * kStep);
      error = std::max(error, std::abs(numeric - got[i]));
      largest = std::max(largest, std::abs(numeric));
    }
    INFO(s.parameter->path);
    CHECK(error <= kTolerance * largest);
  }
}

void check_gradient(const ModelConfig& config, bool recompute) {
  Lm lm(config, Precision::fp64);
  Tensor targets = ids(2, 7, 11, 5);
  targets.data<std::int32_t>()[3] = -1;
  check_gradient(lm, {.ids = ids(2, 7, 11), .recompute = recompute}, targets);
}

}  // namespace

TEST_CASE("the gradient of a GPT-2 style model agrees with differences") {
  check_gradient(gpt2_style(), false);
}

TEST_CASE(
    "the gradient of a Llama style model with grouped heads, qk-norm and RoPE agrees with "
    "differences") {
  check_gradient(llama_style(), false);
}

TEST_CASE("the gradient of a Llama style model with recompute agrees with differences") {
  check_gradient(llama_style(), true);
}

TEST_CASE("the gradient of a model with ALiBi agrees with differences") {
  check_gradient(alibi_style(), false);
}

TEST_CASE("the gradient of a model with partial interleaved RoPE agrees with differences") {
  ModelConfig config = gpt2_style();
  config.position = models::Position::rope;
  config.rope.width = 4;
  config.rope.interleaved = true;
  check_gradient(config, false);
}

TEST_CASE(
    "the gradient of an encoder over padded sequences agrees with differences, however pooled") {
  for (const auto pool : {models::Pooling::cls, models::Pooling::mean, models::Pooling::last}) {
    Classifier encoder(encoder_style(pool), Precision::fp64);
    const Tensor valid = Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0},
                                      {2, 7}, DType::u8);
    check_gradient(
        encoder,
        {.ids = ids(2, 7, 11), .key_valid = valid, .recompute = pool == models::Pooling::cls},
        Tensor::from(std::vector<double>{2, 0}, {2}, DType::i32));
  }
}
