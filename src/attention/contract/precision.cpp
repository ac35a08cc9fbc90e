// How far narrower numbers drift from f64, and what no input may break.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

// Bounds of the largest difference relative to the largest entry: of tokens' outputs and gradients,
// and of gradients of parameters, which are sums over all tokens. baselines.md 2.4 and 21.2.
struct Drift {
  Precision precision;
  double tokens, parameters;
};
constexpr Drift kDrifts[] = {
    {Precision::fp32, 1e-3, 1e-3},
    {Precision::tf32, 2e-2, 4e-2},
    {Precision::fp16_mixed, 2e-2, 4e-2},
    {Precision::bf16_mixed, 2e-2, 4e-2},
};

// Bounds may grow to kMostBounds of themselves, where kRoundings times what one rounding of
// queries, keys and values does to the results of f64 is more: large scores make large errors.
constexpr double kMostBounds = 4, kRoundings = 4;

double unit_roundoff(Precision precision) {
  return std::ldexp(1.0, precision == Precision::bf16_mixed ? -8 : -11);
}

struct Worst {
  double error = 0;
  std::string at = "nothing";
  void meet(const std::string& name, double one) {
    if (one <= error) return;
    error = one;
    at = name;
  }
};

bool exists(Precision precision, const Trial& form) {
  return precision != Precision::tf32 || (form.place != nullptr && form.place->device().is_cuda());
}

Trial wide_trial(const Trial& form) {
  return with_width(form.sized(65), 16);
}
// Of the heads that models have, over several tiles of keys and a part of one: a GPU has other
// kernels for these.
Trial model_trial(Trial form) {
  constexpr int kTokens = 300;
  form.max_len = 2 * kMaxLength;
  return with_width(form.sized(kTokens), 64);
}

// Inputs that have broken kernels: what they are and how tokens become such.
struct Stress {
  const char* name;
  void (*apply)(Tokens& tokens);
};

template <class F>
void each_input(Tokens& tokens, F&& change) {
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global, &Tokens::x}) {
    const Tensor& x = tokens.*part;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      change(x.data<double>()[i]);
  }
}

void scaled(Tokens& tokens, double by) {
  each_input(tokens, [by](double& x) { x *= by; });
}

constexpr Stress kStress[] = {
    {"|q|, |k|, |v| of 30", [](Tokens& tokens) { scaled(tokens, 30); }},
    {"inputs of 1e-6", [](Tokens& tokens) { scaled(tokens, 1e-6); }},
    {"inputs of zero", [](Tokens& tokens) { scaled(tokens, 0); }},
    {"tokens all alike", [](Tokens& tokens) { each_input(tokens, [](double& x) { x = 0.5; }); }},
    {"one key a hundred times larger",
     [](Tokens& tokens) {
       const Tensor one = tokens.k.slice(2, 3, 4), large = clone(one);
       for (std::int64_t i = 0; i < large.numel(); ++i)
         large.data<double>()[i] *= 100;
       copy_host(one.view(), large.view());
     }},
};

struct Drifts {
  Worst tokens, parameters;
  Drifts(const Outcome& found, const Outcome& exact) {
    for (const auto& [name, value] : exact)
      (name.starts_with("grad.param.") ? parameters : tokens)
          .meet(name, distance(found.at(name), value));
  }
};

Tokens rounded_otherwise(const Tokens& tokens, double roundoff) {
  Tokens out = tokens;
  const std::pair<const char*, Tensor Tokens::*> parts[] = {
      {"q", &Tokens::q}, {"k", &Tokens::k}, {"v", &Tokens::v}};
  for (const auto& [name, part] : parts) {
    out.*part = clone(tokens.*part);
    const NamedStream signs(1, cat("contract rounding ", name));
    for (std::int64_t i = 0; i < (out.*part).numel(); ++i) {
      const bool up = signs.below(static_cast<std::uint64_t>(i), 2) == 0;
      (out.*part).data<double>()[i] *= up ? 1 + roundoff : 1 - roundoff;
    }
  }
  return out;
}

// Elements that are not finite though fp16 holds what f64 finds: sums without a denominator may be
// larger than any fp16.
double overflowing(const Outcome& found, const Outcome& exact) {
  constexpr double kLargest = 65504;
  double count = 0;
  for (const auto& [part, value] : found) {
    if (part == "lse") continue;
    const std::vector<double> x = value.values(), y = exact.at(part).values();
    for (std::size_t i = 0; i < x.size(); ++i)
      count += std::isfinite(x[i]) || std::fabs(y[i]) > kLargest ? 0 : 1;
  }
  return count;
}

// The same numbers for f64 and for `precision`: every input rounded first.
Tokens representable(Tokens tokens, Precision precision) {
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::x, &Tokens::q_global,
                               &Tokens::k_global, &Tokens::v_global, &Tokens::dout}) {
    const Tensor narrow = Tensor::empty((tokens.*part).shape(), compute_dtype(precision), kCpu);
    copy_host(narrow.view(), (tokens.*part).view());
    copy_host((tokens.*part).view(), narrow.view());
  }
  return tokens;
}

void add_drift(const Trial& trial, double size, const Drift& drift, Report& report) {
  const Precision precision = drift.precision;
  const How f64{.precision = Precision::fp64};
  const Tokens tokens = representable(draw_tokens(trial, "tokens", size), precision);
  const Outcome found = run(trial, tokens, {.precision = precision});
  const Outcome exact = run(trial, tokens, f64);
  const Drifts drifts(found, exact);
  double tokens_bound = drift.tokens, parameters_bound = drift.parameters;
  const bool beyond =
      drifts.tokens.error > tokens_bound || drifts.parameters.error > parameters_bound;
  if (beyond && precision != Precision::fp32) {
    const Tokens other = rounded_otherwise(tokens, unit_roundoff(precision));
    const Drifts moved(run(trial, other, f64), exact);
    const auto widened = [](double bound, const Worst& by) {
      return std::clamp(kRoundings * by.error, bound, kMostBounds * bound);
    };
    tokens_bound = widened(tokens_bound, moved.tokens);
    parameters_bound = widened(parameters_bound, moved.parameters);
  }
  const std::string check = cat("drift of ", name_of(precision), " from fp64, ", trial.keys,
                                " tokens, heads of ", trial.qk_dim);
  report.add(check, drifts.tokens.error, tokens_bound, cat("worst in ", drifts.tokens.at));
  if (!tokens.parameters.empty())
    report.add(cat(check, ", parameters"), drifts.parameters.error, parameters_bound,
               cat("worst in ", drifts.parameters.at));
}

}  // namespace

void check_stress(const Trial& form, Report& report) {
  const Trial wide = wide_trial(form);
  for (const Drift& drift : kDrifts) {
    if (!exists(drift.precision, form)) continue;
    for (const Stress& stress : kStress) {
      Tokens tokens = draw_tokens(wide);
      stress.apply(tokens);
      const Outcome found = run(wide, tokens, {.precision = drift.precision});
      double bad = 0;
      for (const auto& [part, value] : found)
        bad += part == "lse" ? 0 : nonfinite(value);
      if (bad > 0 && drift.precision == Precision::fp16_mixed)
        bad = overflowing(found, run(wide, tokens, {.precision = Precision::fp64}));
      report.add(cat(stress.name, ": not finite, ", name_of(drift.precision)), bad, 0);
    }
  }
}

void check_precision(const Trial& form, Report& report) {
  for (const Drift& drift : kDrifts) {
    if (!exists(drift.precision, form)) continue;
    add_drift(wide_trial(form), 1, drift, report);
    // Smaller tokens: products of wide heads are larger.
    if (form.place != nullptr) add_drift(model_trial(form), 0.5, drift, report);
  }
}

}  // namespace fovea::attention::contract
