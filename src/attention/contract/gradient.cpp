// Gradients against central differences in f64; elsewhere against those of f64.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

constexpr double kStep = 1e-5;
constexpr double kSingleBound = 1e-3;  // baselines.md 21.2
// Elements of one tensor that are tried: enough to meet every row and feature of the small trials.
constexpr std::uint64_t kMostElements = 48;

// A tensor of the tokens that is moved, and the gradient it should have.
struct Moved {
  std::string name;
  Tensor value;
};

std::vector<Moved> moved_tensors(const Tokens& t) {
  std::vector<Moved> out = {{"q", t.q},
                            {"k", t.k},
                            {"v", t.v},
                            {"x", t.x},
                            {"q_global", t.q_global},
                            {"k_global", t.k_global},
                            {"v_global", t.v_global}};
  if (t.bias.defined()) out.push_back({"bias", t.bias});
  for (const auto& [name, value] : t.parameters)
    out.push_back({cat("param.", name), value});
  return out;
}

// max |a - n| / max(max |n|, 1e-3) over everything that may be moved.
double gradient_error(const Trial& trial, const Tokens& tokens, std::string& worst_at) {
  const How analytic{.precision = Precision::fp64, .training = true};
  const How forward{.precision = Precision::fp64, .backward = false, .training = true};
  const Outcome outcome = run(trial, tokens, analytic);
  double worst = 0;
  for (const Moved& moved : moved_tensors(tokens)) {
    const Tensor gradient = outcome.at(cat("grad.", moved.name));
    const auto n = static_cast<std::uint64_t>(moved.value.numel());
    const Permutation order(n, 1, moved.name);
    double error = 0, size = 1e-3;
    for (std::uint64_t i = 0; i < std::min(n, kMostElements); ++i) {
      const std::uint64_t element = order.at(i);
      double& at = moved.value.data<double>()[element];  // shared with `tokens`
      const double before = at;
      at = before + kStep;
      const double above = loss_of(run(trial, tokens, forward), tokens);
      at = before - kStep;
      const double below = loss_of(run(trial, tokens, forward), tokens);
      at = before;
      const double numeric = (above - below) / (2 * kStep);
      error = std::max(error, std::fabs(numeric - gradient.data<double>()[element]));
      size = std::max(size, std::fabs(numeric));
    }
    if (!(error / size <= worst)) {
      worst = error / size;
      worst_at = moved.name;
    }
  }
  return worst;
}

}  // namespace

void check_gradients(const Trial& form, Report& report) {
  Trial small = with_width(form, 4);
  small.queries = form.cross ? 3 : 5;
  small.keys = 5;
  const auto check = [&](const char* name, const Trial& trial, const Tokens& tokens) {
    if (form.place != nullptr) {
      const How f64{.precision = Precision::fp64, .training = true};
      report.add(cat(name, " of fp32 is that of fp64 on the CPU"),
                 distance(run(trial, tokens, {.training = true}), run(trial, tokens, f64)),
                 kSingleBound);
      return;
    }
    std::string at;
    const double error = gradient_error(trial, tokens, at);
    report.add(name, error, 1e-6, cat("worst at ", at));
  };
  const Tokens plain = draw_tokens(small);
  check("gradient", small, plain);
  if (form.spec->caps.padding) {
    Tokens padded = plain;
    padded.key_valid = lengths_mask({5, 3}, 5);
    if (form.cross) padded.query_valid = lengths_mask({2, 3}, 3);
    check("gradient with padding", small, padded);
  }
  if (form.spec->caps.segments && !form.cross) {
    Tokens packed = plain;
    const std::vector<double> ids = {0, 0, 1, 1, 1, 0, 1, 1, 1, 2};
    packed.segments = Tensor::from(ids, {2, 5}, DType::i32);
    check("gradient with segments", small, packed);
  }
  if (form.spec->caps.bias) {
    Tokens biased = plain;
    const NamedStream stream(1, "contract bias");
    std::vector<double> values;
    for (std::int64_t i = 0; i < small.heads * small.queries * 5; ++i)
      values.push_back(stream.normal(static_cast<std::uint64_t>(i)));
    biased.bias = Tensor::from(values, {1, small.heads, small.queries, 5}, DType::f64);
    check("gradient with a bias", small, biased);
  }
  if (form.spec->caps.dropout) {
    Trial dropped = small;
    dropped.dropout = 0.25;
    check("gradient with dropout", dropped, plain);
  }
}

}  // namespace fovea::attention::contract
