#pragma once
// What the tests of kernel methods share: a method as a trial, its outputs, and attention by all
// pairs.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/contract/trial.h"
#include "config/yaml.h"
#include "core/error.h"

namespace fovea::test {

using namespace attention;
using namespace attention::contract;

inline Trial method(const std::string& name, const std::string& options, bool causal,
                    std::int64_t n) {
  Trial trial{.spec = find_attention(name), .options = config::parse(options, "test")};
  if (trial.options.is_null()) trial.options = config::Node::map({}, {});
  trial.causal = causal;
  return trial.sized(n);
}

inline Tensor outputs(const Trial& trial, const Tokens& tokens) {
  return run(trial, tokens, {.precision = Precision::fp64, .backward = false}).at("o");
}

// Attention with weights weight(q_i, k_j, i, j), every head its own, by all pairs.
template <class F>
Tensor by_pairs(const Trial& trial, const Tokens& tokens, double floor, double added, F&& weight) {
  const std::vector<double> q = tokens.q.values(), k = tokens.k.values(), v = tokens.v.values();
  const auto d = static_cast<std::size_t>(trial.qk_dim), dv = static_cast<std::size_t>(trial.v_dim);
  const auto n = static_cast<std::size_t>(trial.queries);
  std::vector<double> out;
  for (std::size_t row = 0; row < q.size() / d; ++row) {
    const std::size_t head = row / n, i = row % n;
    double mass = 0;
    std::vector<double> sums(dv, 0.0);
    for (std::size_t j = 0; j < (trial.causal ? i + 1 : n); ++j) {
      const double w = weight(&q[row * d], &k[(head * n + j) * d], i, j);
      mass += w;
      for (std::size_t c = 0; c < dv; ++c)
        sums[c] += w * v[(head * n + j) * dv + c];
    }
    for (const double sum : sums)
      out.push_back(sum / (std::max(mass, floor) + added));
  }
  return Tensor::from(out, tokens.dout.shape(), DType::f64);
}

inline double elu1(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

inline std::string refusal(const std::string& name, const std::string& options, bool causal) {
  try {
    const Trial trial = method(name, options, causal, 8);
    make_attention(*trial.spec, trial.config(), trial.options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace fovea::test
