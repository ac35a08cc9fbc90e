// How far narrower numbers drift from f64, and what no input may break.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
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
  Trial wide = form.sized(65);
  wide.qk_dim = wide.v_dim = 16;
  return wide;
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

}  // namespace

void check_stress(const Trial& form, Report& report) {
  const Trial wide = wide_trial(form);
  for (const Drift& drift : kDrifts) {
    if (!exists(drift.precision, form)) continue;
    for (const Stress& stress : kStress) {
      Tokens tokens = draw_tokens(wide);
      stress.apply(tokens);
      double bad = 0;
      for (const auto& [part, value] : run(wide, tokens, {.precision = drift.precision}))
        bad += part == "lse" ? 0 : nonfinite(value);
      report.add(cat(stress.name, ": not finite, ", name_of(drift.precision)), bad, 0);
    }
  }
}

void check_precision(const Trial& form, Report& report) {
  const Trial wide = wide_trial(form);
  for (const Drift& drift : kDrifts) {
    const Precision precision = drift.precision;
    if (!exists(precision, form)) continue;
    // The same inputs in both: rounded first.
    Tokens tokens = draw_tokens(wide);
    for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v, &Tokens::x, &Tokens::q_global,
                                 &Tokens::k_global, &Tokens::v_global, &Tokens::dout}) {
      const Tensor narrow = Tensor::empty((tokens.*part).shape(), compute_dtype(precision), kCpu);
      copy_host(narrow.view(), (tokens.*part).view());
      copy_host((tokens.*part).view(), narrow.view());
    }
    const Outcome found = run(wide, tokens, {.precision = precision});
    Worst of_tokens, of_parameters;
    for (const auto& [name, value] : run(wide, tokens, {.precision = Precision::fp64}))
      (name.starts_with("grad.param.") ? of_parameters : of_tokens)
          .meet(name, distance(found.at(name), value));
    report.add(cat("drift of ", name_of(precision), " from fp64"), of_tokens.error, drift.tokens,
               cat("worst in ", of_tokens.at));
    if (!tokens.parameters.empty())
      report.add(cat("drift of ", name_of(precision), " from fp64, parameters"),
                 of_parameters.error, drift.parameters, cat("worst in ", of_parameters.at));
  }
}

}  // namespace fovea::attention::contract
