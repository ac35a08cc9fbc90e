// What the outputs are whatever the method: finite, of rows whose weights add to one, and in the
// order of the tokens.

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/contract/checks.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

// Of f32's drift from f64, gradients included: baselines.md 21.2, and room for another order of
// sums, which short sequences with denominators near zero tell of.
double single_bound(const Trial& form) {
  return form.place == nullptr ? 1e-3 : 4e-3;
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
  // One log-sum-exp may stand for all heads, which then see alike.
  std::vector<double> sums(o.size() / width, 0.0);
  if (lse != outcome.end() && lse->second.numel() == static_cast<std::int64_t>(sums.size()))
    sums = lse->second.values();
  double error = 0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    const bool saw_none = std::isinf(sums[i / width]) && sums[i / width] < 0;
    error = std::max(error, std::fabs(o[i] - (saw_none ? 0 : 1)));
  }
  return error;
}

// Rows of x along `axis` in the order `from`.
Tensor reordered(const Tensor& x, int axis, const std::vector<std::int64_t>& from) {
  if (!x.defined()) return x;
  Tensor out = clone(x);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    copy_host(out.slice(axis, to, to + 1).view(), x.slice(axis, from[i], from[i] + 1).view());
  }
  return out;
}

// 0..n-1 in another order: n is no multiple of the step.
std::vector<std::int64_t> another_order(std::int64_t n, std::int64_t step) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back((step * i + 2) % n);
  return out;
}

}  // namespace

void check_lengths(const Trial& form, Report& report) {
  double bad = 0, drift = 0;
  for (const std::int64_t n : {1, 2, 3, 33, 127}) {
    const Trial sized = form.sized(n);
    const Tokens tokens = draw_tokens(sized);
    const Outcome found = run(sized, tokens);
    for (const auto& [name, value] : found)
      bad += name == "lse" ? not_a_sum(value) : nonfinite(value);
    drift = std::max(drift, distance(found, run(sized, tokens, {.precision = Precision::fp64})));
  }
  report.add("not finite at odd lengths", bad, 0);
  report.add("drift of fp32 from fp64 at odd lengths", drift, single_bound(form));
}

void check_mass(const Trial& form, Report& report) {
  Tokens ones = draw_tokens(form.sized(33));
  for (const Tensor& v : {ones.v, ones.v_global}) {
    for (std::int64_t i = 0; i < v.numel(); ++i)
      v.data<double>()[i] = 1;
  }
  report.add("values of one make rows of one",
             distance_from_one(run(form.sized(33), ones, {.backward = false})), 1e-5);
}

void check_order(const Trial& form, Report& report) {
  Trial trial = form.sized(33);
  if (form.cross) trial.queries = 14;
  const auto keys = another_order(33, 5),
             queries = form.cross ? another_order(14, 3) : another_order(33, 5);
  Tokens tokens = draw_tokens(trial);
  if (form.spec->caps.padding) {
    tokens.key_valid = lengths_mask({33, 20}, 33);
    if (form.cross) tokens.query_valid = lengths_mask({14, 9}, 14);
  }
  Tokens turned = tokens;
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::q_global, &Tokens::dout, &Tokens::dlse})
    turned.*part = reordered(tokens.*part, 2, queries);
  for (Tensor Tokens::*part : {&Tokens::k, &Tokens::v, &Tokens::k_global, &Tokens::v_global})
    turned.*part = reordered(tokens.*part, 2, keys);
  turned.x = reordered(tokens.x, 1, queries);
  turned.key_valid = reordered(tokens.key_valid, 1, keys);
  turned.query_valid = reordered(tokens.query_valid, 1, queries);
  const Outcome straight = run(trial, tokens), found = run(trial, turned);
  double error = 0;
  for (const auto& [name, value] : straight) {
    const bool by_key = name.starts_with("grad.k") || name.starts_with("grad.v"),
               by_query = name == "o" || name == "lse" || name.starts_with("grad.q");
    if (!by_key && !by_query) continue;
    error = std::max(error, distance(found.at(name), reordered(value, 2, by_key ? keys : queries)));
  }
  report.add("tokens in another order", error, 1e-5);
}

}  // namespace fovea::attention::contract
