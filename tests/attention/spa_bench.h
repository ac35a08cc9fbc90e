#pragma once
// SPA on the CPU in f64, with parameters set by the test.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "attention/standalone.h"
#include "autograd/tape.h"
#include "config/yaml.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::test {

using Values = std::vector<double>;
using Named = std::map<std::string, Values>;

inline Values drawn_values(const std::string& name, std::int64_t count) {
  const NamedStream stream(11, name);
  Values out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(stream.normal(static_cast<std::uint64_t>(i)));
  return out;
}

inline double worst(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) out = std::max(out, std::fabs(a[i] - b[i]));
  }
  return out;
}

struct SpaCase {
  attention::AttentionConfig config{.n_embd = 16,
                                    .n_head = 2,
                                    .n_kv_head = 2,
                                    .qk_dim = 8,
                                    .v_dim = 8,
                                    .max_len = 64,
                                    .causal = true};
  std::string options = "{pattern: given, proj_dim: 4}";
  std::string kind = "spa";
  std::int64_t batch = 2, tokens = 9;
  Named parameters = {};  // by name; others as they start
  Named inputs = {};      // "q", "k", "v", "do"; others drawn
  Tensor key_valid = {};
  Precision precision = Precision::fp64;
  bool training = false;
  std::int64_t step = 0;
};

// o, lse, aux, and the gradients of q, k, v and every parameter ("S", "theta", ...).
inline Named run(const SpaCase& c) {
  using attention::Standalone;
  Stream stream(kCpu);
  CachingAllocator memory(memory_source(kCpu));
  Tape tape;
  StepState at{.step = c.step};
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  ctx.at = &at;
  ctx.precision = c.precision;
  ctx.training = c.training;
  ctx.seed = 1;
  Standalone alone(*attention::find_attention(c.kind), c.config, config::parse(c.options, "test"),
                   c.precision, kCpu);
  for (const auto& [name, parameter] : alone.parameters()) {
    const auto given = c.parameters.find(name);
    if (given == c.parameters.end()) continue;
    alone.set(*parameter, Tensor::from(given->second, parameter->shape, DType::f64));
  }
  alone.want_gradients();
  alone.method().before_step(ctx, {.step = c.step, .max_steps = 100});
  const std::int64_t b = c.batch, n = c.tokens, h = c.config.n_head, hk = c.config.n_kv_head;
  const auto input = [&](const std::string& name, Shape shape) {
    const auto given = c.inputs.find(name);
    const Values values =
        given != c.inputs.end() ? given->second : drawn_values(name, shape.numel());
    return Tensor::from(values, shape, ctx.compute());
  };
  attention::AttentionInput in;
  in.q = leaf(input("q", {b, h, n, c.config.qk_dim}));
  in.k = leaf(input("k", {b, hk, n, c.config.qk_dim}));
  in.v = leaf(input("v", {b, hk, n, c.config.v_dim}));
  in.key_valid = c.key_valid;
  ctx.tape = &tape;
  const attention::AttentionOutput out = alone.method().forward(ctx, in);
  std::vector<Var> penalties;
  alone.method().aux_loss(ctx, penalties);
  Named result = {{"o", out.o.value().values()}, {"lse", out.lse.value().values()}};
  std::vector<Var> ends{out.o};
  std::vector<Tensor> seeds{input("do", {b, h, n, c.config.v_dim})};
  for (const Var& penalty : penalties) {
    result["aux"] = penalty.value().values();
    ends.push_back(penalty);
    seeds.push_back(Tensor::from({{1.0}}, {}, state_dtype(c.precision)));
  }
  tape.backward(ctx, ends, seeds);
  ctx.tape = nullptr;
  for (const auto& [name, var] : {std::pair("q", &in.q), {"k", &in.k}, {"v", &in.v}})
    result[name] = var->grad()->value.values();
  for (const auto& [name, parameter] : alone.parameters())
    result[name] = parameter->grad->value.values();
  return result;
}

inline double loss_of(const SpaCase& c, const Named& outcome) {
  const Values& o = outcome.at("o");
  const Values weights = c.inputs.count("do") != 0
                             ? c.inputs.at("do")
                             : drawn_values("do", static_cast<std::int64_t>(o.size()));
  double sum = 0;
  for (std::size_t i = 0; i < o.size(); ++i)
    sum += o[i] * weights[i];
  return sum + (outcome.count("aux") != 0 ? outcome.at("aux")[0] : 0);
}

// max |a - n| / max |n| of a parameter's gradient against central differences.
inline double gradient_error(SpaCase c, const std::string& name, Values at) {
  c.parameters[name] = at;
  const Values gradient = run(c).at(name);
  double error = 0, size = 1e-3;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto loss = [&](double moved) {
      c.parameters[name] = at;
      c.parameters[name][i] += moved;
      return loss_of(c, run(c));
    };
    const double numeric = (loss(1e-5) - loss(-1e-5)) / 2e-5;
    error = std::max(error, std::fabs(numeric - gradient[i]));
    size = std::max(size, std::fabs(numeric));
  }
  return error / size;
}

// S [rows,cols] times R [cols,cols2].
inline Values times(const Values& s, const Values& r, std::size_t cols, std::size_t cols2) {
  Values out(s.size() / cols * cols2);
  for (std::size_t i = 0; i < s.size() / cols; ++i) {
    for (std::size_t j = 0; j < cols2; ++j) {
      for (std::size_t t = 0; t < cols; ++t)
        out[i * cols2 + j] += s[i * cols + t] * r[t * cols2 + j];
    }
  }
  return out;
}

}  // namespace fovea::test
