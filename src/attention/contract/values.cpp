// What the outputs are: exact attention where promised, convex combinations, finite.

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/alibi.h"
#include "attention/contract/checks.h"
#include "autograd/tape.h"
#include "config/yaml.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

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

double worst(const Outcome& found, const Outcome& expected) {
  double error = 0;
  for (const auto& [name, value] : expected)
    error = std::max(error, distance(found.at(name), value));
  return error;
}

// An lse is finite, or -inf where a row's pattern shows it no key.
double not_a_sum(const Tensor& lse) {
  double count = 0;
  for (const double value : lse.values())
    count += std::isnan(value) || value > std::numeric_limits<double>::max() ? 1 : 0;
  return count;
}

// Of rows of o; of those that saw no key, which their lse tells, the distance from zero.
double distance_from_one(const Outcome& outcome) {
  const std::vector<double> o = outcome.at("o").values();
  const std::size_t width = static_cast<std::size_t>(outcome.at("o").size(3));
  const auto lse = outcome.find("lse");
  const std::vector<double> sums =
      lse != outcome.end() ? lse->second.values() : std::vector<double>(o.size() / width, 0.0);
  double error = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    const bool saw_none = std::isinf(sums[i / width]) && sums[i / width] < 0;
    error = std::max(error, std::fabs(o[i] - (saw_none ? 0 : 1)));
  }
  return error;
}

}  // namespace

void check_dense(const Trial& form, Report& report) {
  Trial trial = form;
  if (!form.spec->caps.exact) {
    if (form.spec->dense_when.empty()) {
      report.skip("equals exact attention", "not promised");
      return;
    }
    trial.options = config::parse(substituted(std::string(form.spec->dense_when), trial.config()),
                                  "dense_when");
  }
  double f64 = 0, f32 = 0;
  for (const std::int64_t n : {1, 2, 7, 16, 33, 65, 128}) {
    Trial sized = trial.sized(n);
    if (form.cross) sized.queries = std::max<std::int64_t>(1, n / 2);
    Tokens tokens = draw_tokens(sized);
    tokens.dlse =
        Tensor::from(std::vector<double>(static_cast<std::size_t>(tokens.dlse.numel()), 0.0),
                     tokens.dlse.shape(), DType::f64);
    if (form.spec->caps.padding && n > 1) {
      tokens.key_valid = lengths_mask({n, n - 1}, n);
      if (form.cross) tokens.query_valid = lengths_mask({sized.queries, 1}, sized.queries);
    }
    const Outcome expected = dense(sized, tokens);
    f64 = std::max(f64, worst(run(sized, tokens, {.precision = Precision::fp64}), expected));
    f32 = std::max(f32, worst(run(sized, tokens), expected));
  }
  report.add("equals exact attention, f64, N from 1 to 128", f64, 1e-10);
  report.add("equals exact attention, f32", f32, 2e-5);
}

void check_alibi(const Trial& form, Report& report) {
  if (!form.spec->caps.bias || form.cross) return;
  Trial trial = form.sized(33);
  Tokens tokens = draw_tokens(trial);
  trial.position = Position::alibi;
  const Tensor found = run(trial, tokens, {.backward = false}).at("o");
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

void check_values(const Trial& form, Report& report) {
  double bad = 0;
  for (const std::int64_t n : {1, 3, 33, 127}) {
    Trial sized = form.sized(n);
    for (const auto& [name, value] : run(sized, draw_tokens(sized)))
      bad += name == "lse" ? not_a_sum(value) : nonfinite(value);
  }
  report.add("finite at odd lengths", bad, 0);

  Tokens ones = draw_tokens(form.sized(33));
  for (const Tensor& v : {ones.v, ones.v_global}) {
    for (std::int64_t i = 0; i < v.numel(); ++i)
      v.data<double>()[i] = 1;
  }
  if (form.spec->caps.convex) {
    report.add("values of one make rows of one",
               distance_from_one(run(form.sized(33), ones, {.backward = false})), 1e-5);
  } else {
    report.skip("values of one make rows of one", "its weights are not convex");
  }

  if (!form.causal && form.spec->caps.exact) {
    const Trial sized = form.sized(33);
    const Tokens tokens = draw_tokens(sized);
    Tokens turned = tokens;
    turned.k = clone(tokens.k);
    turned.v = clone(tokens.v);
    for (std::int64_t j = 0; j < 33; ++j) {
      const std::int64_t from = (5 * j + 2) % 33;
      copy_host(turned.k.slice(2, j, j + 1).view(), tokens.k.slice(2, from, from + 1).view());
      copy_host(turned.v.slice(2, j, j + 1).view(), tokens.v.slice(2, from, from + 1).view());
    }
    report.add("keys in another order",
               distance(run(sized, turned).at("o"), run(sized, tokens).at("o")), 1e-5);
  }
}

void check_precision(const Trial& form, Report& report) {
  Trial wide = form.sized(65);
  wide.qk_dim = wide.v_dim = 16;
  for (const Precision precision : {Precision::fp16_mixed, Precision::bf16_mixed}) {
    const std::string name = name_of(precision);
    double bad = 0;
    for (const auto& [part, value] :
         run(wide, draw_tokens(wide, "large", 30), {.precision = precision})) {
      bad += part == "lse" ? 0 : nonfinite(value);
    }
    report.add(cat("|q|, |k| of 30 stay finite, ", name), bad, 0);

    // The same inputs in both: rounded to 16 bit first.
    Tokens tokens = draw_tokens(wide);
    for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::x, &Tokens::dout}) {
      const Tensor narrow = Tensor::empty((tokens.*part).shape(), compute_dtype(precision), kCpu);
      copy_host(narrow.view(), (tokens.*part).view());
      copy_host((tokens.*part).view(), narrow.view());
    }
    const Outcome found = run(wide, tokens, {.precision = precision});
    const Outcome expected = run(wide, tokens, {.precision = Precision::fp64});
    double error = 0;
    for (const char* part : {"o", "grad.q", "grad.k", "grad.v"})
      error = std::max(error, distance(found.at(part), expected.at(part)));
    report.add(cat("drift of ", name, " from fp64"), error, 2e-2);
  }
}

}  // namespace fovea::attention::contract
