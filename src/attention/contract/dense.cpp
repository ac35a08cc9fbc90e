// What the outputs are: exact attention, or the method's definition by all pairs.

#include <algorithm>
#include <cmath>

#include "attention/alibi.h"
#include "attention/contract/checks.h"
#include "autograd/tape.h"
#include "config/yaml.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

constexpr std::int64_t kLengths[] = {1, 2, 7, 16, 33, 65, 128};
constexpr int kWidths[] = {4, 16, 64};

std::string substituted(std::string text, const AttentionConfig& config) {
  const std::pair<std::string, int> names[] = {
      {"${qk_dim}", config.qk_dim}, {"${v_dim}", config.v_dim}, {"${max_len}", config.max_len}};
  for (const auto& [name, value] : names) {
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name)) {
      text.replace(at, name.size(), cat(value));
    }
  }
  return text;
}

// Exact attention of the same tokens, materialised, in f64: o and the gradients of q, k, v.
Outcome dense(const Trial& trial, const Tokens& tokens) {
  Stream stream(kCpu);
  CachingAllocator memory(memory_source(kCpu));
  Tape tape;
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  ctx.tape = &tape;
  ctx.precision = Precision::fp64;
  AttentionMask mask;
  mask.causal = trial.causal;
  mask.key_valid = tokens.key_valid;
  mask.query_valid = tokens.query_valid;
  mask.query_segments = tokens.segments;
  const Var q = leaf(tokens.q), k = leaf(tokens.k), v = leaf(tokens.v);
  const AttentionResult r = reference_attention(ctx, q, k, v, Var(), mask);
  Outcome out = {{"o", clone(r.o.value())}};
  tape.backward(ctx, r.o, tokens.dout);
  out["grad.q"] = clone(q.grad()->value);
  out["grad.k"] = clone(k.grad()->value);
  out["grad.v"] = clone(v.grad()->value);
  return out;
}

// With padding and fewer queries where there may be.
std::pair<Trial, Tokens> sized_case(const Trial& form, std::int64_t n, int width) {
  Trial trial = form.sized(n);
  trial.qk_dim = trial.v_dim = width;
  if (form.cross) trial.queries = std::max<std::int64_t>(1, n / 2);
  Tokens tokens = draw_tokens(trial);
  if (form.spec->caps.padding && n > 1) {
    tokens.key_valid = lengths_mask({n, n - 1}, n);
    if (form.cross) tokens.query_valid = lengths_mask({trial.queries, 1}, trial.queries);
  }
  return {trial, tokens};
}

// Calls compare(trial, tokens) for every length, and for every width that fits at one of them.
template <class F>
void each_size(const Trial& form, F&& compare) {
  const auto one = [&](std::int64_t n, int width) {
    const auto [trial, tokens] = sized_case(form, n, width);
    compare(trial, tokens);
  };
  for (const std::int64_t n : kLengths)
    one(n, form.qk_dim);
  for (const int width : kWidths) {
    Trial trial = form;
    trial.qk_dim = trial.v_dim = width;
    if (refusal_of(trial).empty()) one(33, width);
  }
}

void against_exact(const Trial& form, Report& report) {
  double f64 = 0, f32 = 0;
  each_size(form, [&](Trial trial, Tokens tokens) {
    if (!form.spec->caps.exact) {
      trial.options = config::parse(substituted(std::string(form.spec->dense_when), trial.config()),
                                    "dense_when");
      tokens.parameters.clear();  // these options may have others
    }
    tokens.dlse =
        Tensor::from(std::vector<double>(static_cast<std::size_t>(tokens.dlse.numel()), 0.0),
                     tokens.dlse.shape(), DType::f64);
    const Outcome expected = dense(trial, tokens);
    if (form.place == nullptr)
      f64 = std::max(f64, distance(run(trial, tokens, {.precision = Precision::fp64}), expected));
    f32 = std::max(f32, distance(run(trial, tokens), expected));
  });
  if (form.place == nullptr) report.add("equals exact attention, f64, N from 1 to 128", f64, 1e-10);
  report.add("equals exact attention, f32", f32, 2e-5);
}

// o by the definition, with the parameters of the tokens and what the method drew.
Tensor defined(const Trial& trial, const Tokens& tokens) {
  Session session(trial, tokens, {.precision = Precision::fp64, .backward = false});
  session.outcome(tokens);  // some draw when they first meet tokens
  const config::Node options =
      config::complete(trial.options, trial.spec->options, "model.attention");
  return trial.spec->definition(session.method(), trial.projected(), options,
                                session.input(tokens, /*with_gradients=*/false));
}

void against_definition(const Trial& form, Report& report) {
  double f64 = 0, f32 = 0;
  each_size(form, [&](const Trial& trial, const Tokens& tokens) {
    const Tensor expected = defined(trial, tokens);
    if (form.place == nullptr) {
      const How wide{.precision = Precision::fp64, .backward = false};
      f64 = std::max(f64, distance(run(trial, tokens, wide).at("o"), expected));
    }
    f32 = std::max(f32, distance(run(trial, tokens, {.backward = false}).at("o"), expected));
  });
  if (form.place == nullptr) report.add("equals its definition, f64, N from 1 to 128", f64, 1e-10);
  report.add("equals its definition, f32", f32, 1e-4);
}

}  // namespace

void check_dense(const Trial& form, Report& report) {
  if (form.spec->caps.exact || !form.spec->dense_when.empty()) against_exact(form, report);
  if (form.spec->definition != nullptr) against_definition(form, report);
}

void check_alibi(const Trial& form, Report& report) {
  Trial trial = form.sized(33);
  Tokens tokens = draw_tokens(trial);
  trial.position = Position::alibi;
  const Tensor found = run(trial, tokens, {.backward = false}).at("o");
  if (!form.spec->caps.bias) {
    report.add("ALiBi decays its weights", distance(found, defined(trial, tokens)), 1e-4);
    return;
  }
  std::vector<double> bias;
  for (const double slope : alibi_slopes(trial.heads)) {
    for (std::int64_t i = 0; i < 33; ++i) {
      for (std::int64_t j = 0; j < 33; ++j)
        bias.push_back(-slope * std::fabs(static_cast<double>(i - j)));
    }
  }
  tokens.bias = Tensor::from(bias, {1, trial.heads, 33, 33}, DType::f64);
  trial.position = Position::none;
  report.add("ALiBi equals its bias",
             distance(found, run(trial, tokens, {.backward = false}).at("o")), 1e-5);
}

}  // namespace fovea::attention::contract
