#include <cmath>

#include <doctest/doctest.h>

#include "attention/kernel_method.h"
#include "attention/trial_method.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("RFA's features estimate a Gaussian of the distance of normalised rows") {
  // Two keys, one of them the query itself with value 1, the other with value 0: o = 1 / (1 + w).
  Trial trial = method("rfa", "{features: 4096, pool: 1, temperature: 0.8}", false, 2);
  trial.heads = trial.kv_heads = 1;
  trial.batch = 1;
  Tokens tokens = draw_tokens(trial);
  tokens.parameters["sigma"] = Tensor::from(std::vector<double>(8, 1.0), {1, 8}, DType::f64);
  for (std::int64_t c = 0; c < 8; ++c) {
    tokens.k.data<double>()[c] = tokens.q.data<double>()[c];  // key 0 = query 0
    tokens.v.data<double>()[c] = 1;
    tokens.v.data<double>()[8 + c] = 0;
  }
  const double o = outputs(trial, tokens).values()[0];
  double distance2 = 0, nq = 0, nk = 0;
  const double *q = tokens.q.data<double>(), *k = tokens.k.data<double>() + 8;
  for (int c = 0; c < 8; ++c) {
    nq += q[c] * q[c];
    nk += k[c] * k[c];
  }
  for (int c = 0; c < 8; ++c) {
    const double x = q[c] / (std::sqrt(nq) + 1e-3) - k[c] / (std::sqrt(nk) + 1e-3);
    distance2 += x * x;
  }
  CHECK(1 / o - 1 == doctest::Approx(std::exp(-distance2 / (2 * 0.8 * 0.8))).epsilon(0.1));
}

TEST_CASE("a gate of one half makes RFA's sums moving averages") {
  Trial trial = method("rfa", "{features: 6, pool: 1, gate: true, chunk: 8}", true, 30);
  Tokens tokens = draw_tokens(trial);
  for (const char* name : {"gate.w", "gate.b"}) {
    Tensor& value = tokens.parameters.at(name);
    for (std::int64_t i = 0; i < value.numel(); ++i)
      value.data<double>()[i] = 0;
  }
  const Tensor gated = outputs(trial, tokens);
  // o_t = sum_j 2^-(t-j) w_tj v_j / sum of the same: the weights by single pairs.
  const std::vector<double> q = tokens.q.values(), k = tokens.k.values(), v = tokens.v.values();
  TrialMethod alone(trial);
  Ctx& ctx = alone.ctx;
  alone.method().before_step(ctx, {});
  const std::vector<double> w = alone.method().buffers()[0]->value.values(),
                            sigma = tokens.parameters.at("sigma").values();
  const auto weight = [&](const double* a, const double* b, std::size_t head) {
    double na = 0, nb = 0, sum = 0;
    for (int c = 0; c < 8; ++c) {
      na += a[c] * a[c];
      nb += b[c] * b[c];
    }
    for (std::size_t r = 0; r < 6; ++r) {
      double u = 0;
      for (std::size_t c = 0; c < 8; ++c)
        u += sigma[head * 8 + c] * w[r * 8 + c] *
             (a[c] / (std::sqrt(na) + 1e-3) - b[c] / (std::sqrt(nb) + 1e-3));
      sum += std::cos(u);
    }
    return sum;
  };
  const std::size_t t = 29, head = 1;
  double mass = 0, sum = 0;
  for (std::size_t j = 0; j <= t; ++j) {
    const double by = std::exp2(-static_cast<double>(t - j)) * 0.5 *
                      weight(&q[(head * 30 + t) * 8], &k[(head * 30 + j) * 8], head);
    mass += by;
    sum += by * v[(head * 30 + j) * 8];
  }
  CHECK(gated.slice(0, 0, 1).slice(1, 1, 2).slice(2, 29, 30).values()[0] ==
        doctest::Approx(sum / std::max(mass, 0.06)).epsilon(1e-9));
}

TEST_CASE("each step of training picks matrices for RFA's heads; evaluation has fixed ones") {
  const Trial trial = method("rfa", "{features: 8, pool: 50}", true, 10);
  const Tokens tokens = draw_tokens(trial);
  TrialMethod alone(trial);
  Ctx& ctx = alone.ctx;
  AttentionInput in;
  in.q = Var(tokens.q);
  in.k = Var(tokens.k);
  in.v = Var(tokens.v);
  const auto at = [&](std::int64_t step, bool training) {
    alone.method().before_step(ctx, {.step = step, .max_steps = 0});
    ctx.training = training;
    return alone.method().forward(ctx, in).o.value().values();
  };
  const auto first = at(0, true), second = at(1, true), fixed = at(0, false);
  CHECK(first != second);
  CHECK(at(0, true) == first);
  CHECK(at(7, false) == fixed);
}

TEST_CASE("RFA's gate is refused where there is nothing to decay") {
  CHECK(refusal("rfa", "gate: true", false).find("bidirectional") != std::string::npos);
  CHECK(refusal("rfa", "gate: true", true).empty());
}
