#pragma once
// One method on the CPU, with tokens drawn from named streams, and its dense twin.

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "attention/registry.h"
#include "autograd/tape.h"
#include "config/yaml.h"
#include "core/random.h"

namespace fovea::test {

inline Var drawn(const std::string& name, Shape shape, DType dtype = DType::f32) {
  const NamedStream stream(3, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = stream.normal(i);
  return leaf(Tensor::from(values, shape, dtype));
}

struct MethodBench {
  attention::AttentionConfig config;
  Stream stream{kCpu};
  CachingAllocator memory{memory_source(kCpu)};
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  std::unique_ptr<attention::Attention> method;

  MethodBench(const std::string& kind, const attention::AttentionConfig& shape,
              const std::string& options, Precision precision = Precision::fp32,
              const std::string& path = "layer")
      : config(shape),
        method(attention::make_attention(*attention::find_attention(kind), shape,
                                         config::parse(options, "a.yaml"))) {
    method->set_path(path);
    ctx.precision = precision;
    ctx.seed = 1;
  }

  attention::AttentionInput tokens(std::int64_t batch, std::int64_t n) const {
    const DType dtype = ctx.compute();
    const Shape q{batch, config.n_head, n, config.qk_dim},
        k{batch, config.n_kv_head, n, config.qk_dim}, v{batch, config.n_kv_head, n, config.v_dim};
    attention::AttentionInput in;
    in.q = drawn("q", q, dtype);
    in.k = drawn("k", k, dtype);
    in.v = drawn("v", v, dtype);
    in.q_global = drawn("q_global", q, dtype);
    in.k_global = drawn("k_global", k, dtype);
    in.v_global = drawn("v_global", v, dtype);
    return in;
  }
  attention::AttentionOutput forward(const attention::AttentionInput& in) {
    return method->forward(ctx, in);
  }
};

// o, lse and gradients of whatever `run` makes of the leaves, for drawn gradients of o.
using Parts = std::map<std::string, std::vector<double>>;
inline Parts parts_of(MethodBench& bench, const attention::AttentionInput& in,
                      const std::function<attention::AttentionOutput(Ctx&)>& run) {
  Tape tape;
  bench.ctx.tape = &tape;
  for (const Var* x : {&in.q, &in.k, &in.v, &in.q_global, &in.k_global, &in.v_global}) {
    if (x->defined()) x->grad()->value = Tensor();
  }
  const attention::AttentionOutput out = run(bench.ctx);
  tape.backward(bench.ctx, out.o, drawn("do", out.o.shape(), out.o.dtype()).value());
  bench.ctx.tape = nullptr;
  Parts parts = {{"o", out.o.value().values()}, {"lse", out.lse.value().values()}};
  const std::pair<const char*, const Var*> leaves[] = {{"q", &in.q},
                                                       {"k", &in.k},
                                                       {"v", &in.v},
                                                       {"q_global", &in.q_global},
                                                       {"k_global", &in.k_global},
                                                       {"v_global", &in.v_global}};
  for (const auto& [name, var] : leaves) {
    if (var->defined() && var->grad()->value.defined()) parts[name] = var->grad()->value.values();
  }
  return parts;
}

// Whether query i of head h sees key j.
using Visible = std::function<bool(std::int64_t h, std::int64_t i, std::int64_t j)>;

// Exact attention under a dense boolean mask, materialised: the oracle of baselines.md 4.
inline attention::AttentionOutput masked(Ctx& ctx, const attention::AttentionInput& in,
                                         const Visible& visible) {
  const std::int64_t heads = in.q.size(1), n = in.q.size(2), m = in.k.size(2);
  std::vector<double> bias;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j)
        bias.push_back(visible(h, i, j) ? 0 : -std::numeric_limits<double>::infinity());
    }
  }
  AttentionMask mask;
  mask.key_valid = in.key_valid;
  mask.query_valid = in.query_valid;
  const Var hidden(Tensor::from(bias, {1, heads, n, m}, in.q.dtype()));
  const AttentionResult r = reference_attention(ctx, in.q, in.k, in.v, hidden, mask);
  return {.o = r.o, .lse = r.lse};
}

inline void check_close(const Parts& found, const Parts& expected, double tolerance) {
  for (const auto& [name, values] : expected) {
    CAPTURE(name);
    REQUIRE(found.count(name) == 1);
    const std::vector<double>& other = found.at(name);
    REQUIRE(other.size() == values.size());
    double worst = 0, size = 1e-2;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == other[i]) continue;
      worst = std::max(worst, std::fabs(values[i] - other[i]));
      size = std::max(size, std::fabs(values[i]));
    }
    CHECK(worst / size <= tolerance);
  }
}

}  // namespace fovea::test
