// How a method runs: the same twice, token by token, at the cost it declares, refusing what it
// lacks.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
#include "attention/standalone.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

double differing_outcomes(const Outcome& a, const Outcome& b) {
  double count = 0;
  for (const auto& [name, value] : a)
    count += differing(value, b.at(name));
  return count;
}

Tensor f32_slice(const Tensor& x, int axis, std::int64_t from, std::int64_t to) {
  const Tensor part = x.slice(axis, from, to);
  Tensor out = Tensor::empty(part.shape(), DType::f32, kCpu);
  copy_host(out.view(), part.view());
  return out;
}

AttentionInput tokens_between(const Tokens& t, std::int64_t from, std::int64_t to) {
  AttentionInput in;
  in.q = Var(f32_slice(t.q, 2, from, to));
  in.k = Var(f32_slice(t.k, 2, from, to));
  in.v = Var(f32_slice(t.v, 2, from, to));
  in.x = Var(f32_slice(t.x, 1, from, to));
  in.q_global = Var(f32_slice(t.q_global, 2, from, to));
  in.k_global = Var(f32_slice(t.k_global, 2, from, to));
  in.v_global = Var(f32_slice(t.v_global, 2, from, to));
  in.q_unrotated = in.q;
  in.k_unrotated = in.k;
  return in;
}

}  // namespace

void check_determinism(const Trial& form, Report& report) {
  Trial trial = form.sized(130);
  trial.dropout = form.spec->caps.dropout ? 0.1 : 0;
  const Tokens tokens = draw_tokens(trial);
  const Outcome once = run(trial, tokens, {.training = true});
  report.add("bits that differ in a second run",
             differing_outcomes(run(trial, tokens, {.training = true}), once), 0);
  report.add("bits that differ with 3 threads",
             differing_outcomes(run(trial, tokens, {.threads = 3, .training = true}), once), 0);
}

void check_decode(const Trial& form, Report& report) {
  if (!form.causal) return;
  if (!form.spec->caps.decode) {
    report.skip("decoding equals a full pass", "it has no decoding state");
    return;
  }
  const Trial trial = form.sized(70);
  const Tokens tokens = draw_tokens(trial);
  const Tensor expected = run(trial, tokens, {.backward = false}).at("o");
  Standalone alone(*trial.spec, trial.config(), trial.options, Precision::fp32, kCpu);
  for (const auto& [name, parameter] : alone.parameters())
    alone.set(*parameter, tokens.parameters.at(name));
  Stream stream(kCpu);
  CachingAllocator memory(memory_source(kCpu));
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  ctx.seed = 1;
  alone.method().before_step(ctx, nn::Clock{});
  const std::unique_ptr<DecodeState> state =
      alone.method().start(ctx, static_cast<int>(trial.batch), 70);
  if (state == nullptr) {
    report.add("decoding equals a full pass", 1, 0,
               "caps.decode is set, but start() gave no state");
    return;
  }
  double error = 0;
  std::int64_t from = 0;
  for (const std::int64_t count : {61, 1, 1, 1, 1, 4, 1}) {
    const AttentionOutput out =
        alone.method().step(ctx, *state, tokens_between(tokens, from, from + count));
    error = std::max(error, distance(out.o.value(), expected.slice(2, from, from + count)));
    from += count;
  }
  report.add("decoding equals a full pass", error, form.spec->caps.exact ? 1e-5 : 1e-4,
             error == 0 ? "bit for bit" : "");
  report.add("tokens the state has lost", std::fabs(static_cast<double>(state->length() - 70)), 0);
}

void check_cost(const Trial& form, Report& report) {
  if (form.spec->cost == nullptr) {
    report.add("declares its cost", 1, 0, "cost is null");
    return;
  }
  Trial trial = form.sized(128);
  if (form.cross) trial.queries = 64;
  Standalone alone(*trial.spec, trial.config(), trial.options, Precision::fp32, kMeta);
  Stream stream(kMeta);
  CachingAllocator memory(memory_source(kMeta));
  Tape tape;
  Ctx ctx{.device = kMeta, .stream = stream, .activations = memory};
  ctx.tape = &tape;
  alone.want_gradients();
  const Tokens tokens = draw_tokens(trial);
  const auto meta = [](const Tensor& x) {
    return leaf(Tensor::empty(x.shape(), DType::f32, kMeta));
  };
  AttentionInput in;
  in.q = meta(tokens.q);
  in.k = meta(tokens.k);
  in.v = meta(tokens.v);
  in.x = meta(tokens.x);
  in.q_global = meta(tokens.q_global);
  in.k_global = meta(tokens.k_global);
  in.v_global = meta(tokens.v_global);
  in.q_unrotated = in.q;
  in.k_unrotated = in.k;
  const AttentionOutput out = alone.method().forward(ctx, in);
  const double forward = std::exchange(stream.cost().flops, 0.0);
  tape.backward(ctx, out.o, Tensor::empty(out.o.shape(), DType::f32, kMeta));
  const double backward = stream.cost().flops;
  const config::Node options =
      config::complete(trial.options, trial.spec->options, "model.attention");
  const Cost cost = trial.spec->cost(trial.config(), options, trial.queries, trial.keys);
  const auto batch = static_cast<double>(trial.batch);
  const auto relative = [](double formula, double counted) {
    return std::fabs(formula - counted) / std::max(counted, 1.0);
  };
  report.add("forward FLOPs of the formula against the count",
             relative(batch * cost.useful_forward, forward), 0.05);
  report.add("backward FLOPs of the formula against the count",
             relative(batch * cost.useful_backward, backward), 0.05);
  const double short_fall = std::max({cost.useful_forward - cost.executed_forward, 0.0});
  report.add("useful FLOPs beyond the executed ones", short_fall, 0);
}

void check_refusals(const AttentionSpec& spec, const config::Node& options, Report& report) {
  const Capabilities& caps = spec.caps;
  Trial base{.spec = &spec, .options = options, .causal = caps.causal && !caps.bidirectional};
  const auto tried = [&](const std::string& what, bool promised, const AttentionConfig& config) {
    bool built = true;
    std::string reason;
    try {
      Standalone(spec, config, options, Precision::fp32, kCpu);
    } catch (const ConfigError& error) {
      built = false;
      reason = error.what();
    }
    report.add(cat(what, promised ? " is built" : " is refused"), built == promised ? 0 : 1, 0,
               reason);
  };
  AttentionConfig config = base.config();
  config.cross = false;
  config.causal = true;
  tried("a causal model", caps.causal, config);
  config.causal = false;
  tried("a bidirectional model", caps.bidirectional, config);
  config.cross = true;
  tried("cross-attention", caps.cross, config);
  config = base.config();
  config.n_head = 4;
  tried("grouped heads", caps.gqa, config);
  config = base.config();
  config.position = Position::alibi;
  tried("model.position: alibi", caps.bias, config);
  config.causal = true;
  tried("causal model.position: alibi", caps.causal && (caps.bias || caps.decay), config);
}

}  // namespace fovea::attention::contract
