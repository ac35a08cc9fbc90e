#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea {

namespace {

using Values = std::vector<double>;
using Run = std::function<std::vector<Var>(Ctx&, std::span<const Var>)>;

// Smallest magnitude an error is taken relative to.
constexpr double kFloor = 1e-3;
// Elements of one input whose derivative is taken numerically; larger inputs are sampled.
constexpr std::int64_t kMostElements = 256;
// Step of the differences: their error is h^4 times a fifth derivative, that of rounding 1e-16 / h.
constexpr double kStep = 4e-4;

// Reals and parameters in `dtype`, ids as i32, masks (three quarters ones) as u8.
Tensor draw(const OpCase& op_case, std::size_t index, DType dtype) {
  const CaseInput& input = op_case.inputs[index];
  const NamedStream stream(0, cat("op case ", op_case.name, " ", index));
  Values values(static_cast<std::size_t>(input.shape.numel()));
  const auto whole = static_cast<std::uint64_t>(std::max(1.0, input.high - input.low));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (input.kind) {
      case CaseInput::Kind::real:
      case CaseInput::Kind::parameter:
        values[i] = input.low + (input.high - input.low) * stream.uniform(i);
        break;
      case CaseInput::Kind::ids:
        values[i] = input.low + static_cast<double>(stream.below(i, whole));
        break;
      case CaseInput::Kind::mask:
        values[i] = stream.below(i, 4) != 0 ? 1 : 0;
        break;
    }
  }
  const bool is_real =
      input.kind == CaseInput::Kind::real || input.kind == CaseInput::Kind::parameter;
  return Tensor::from(values, input.shape,
                      is_real                              ? dtype
                      : input.kind == CaseInput::Kind::ids ? DType::i32
                                                           : DType::u8);
}

bool is_differentiable(const CaseInput& input) {
  return input.differentiable &&
         (input.kind == CaseInput::Kind::real || input.kind == CaseInput::Kind::parameter);
}

// The inputs of a case, as exact as `dtype` holds them, whatever they are computed in.
std::vector<Values> draw_all(const OpCase& op_case, DType dtype) {
  std::vector<Values> out;
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i)
    out.push_back(draw(op_case, i, dtype).values());
  return out;
}

// Room to run a case; on the CPU guard bytes stand behind every tensor.
struct Bench {
  Stream stream;
  CachingAllocator memory;
  GuardAllocator guarded{memory};
  Ctx ctx;

  Bench(Precision precision, int threads, Device device)
      : stream(device, threads),
        memory(memory_source(device)),
        ctx{.device = device,
            .stream = stream,
            .activations = device.is_cpu() ? static_cast<Allocator&>(guarded) : memory,
            .training = true,
            .precision = precision,
            .seed = 1} {}
  Tensor place(const Values& values, const CaseInput& input) const {
    const DType dtype = input.kind == CaseInput::Kind::ids    ? DType::i32
                        : input.kind == CaseInput::Kind::mask ? DType::u8
                                                              : ctx.compute();
    const Tensor from = Tensor::from(values, input.shape, dtype);
    Tensor out = ctx.empty(input.shape, dtype, "input");
    transfer(out, from, ctx.stream);
    return out;
  }
  // On a device what was never written must not look like a result by luck.
  void poison() {
    if (!ctx.device.is_cuda()) return;
    constexpr std::int64_t kBytes = 64 << 20;
    const Tensor junk = ctx.empty({kBytes / 4}, DType::f32, "poison");
    FOVEA_ON(ctx.device, fill(stream.ref(), junk.view(), std::nan("")));
  }
  Values values(const Tensor& x) {
    if (ctx.device.is_cpu()) return x.values();
    return contiguous(ctx, x).to(kCpu, stream).values();
  }
};

// What a case yields: its outputs, and the gradients of its differentiable inputs (else empty) for
// output gradients that are drawn: `weights`, empty for outputs that nobody differentiates.
struct Outcome {
  std::vector<Values> outputs, gradients, weights;
};

Tensor output_gradient(const OpCase& op_case, std::size_t index, const Var& output,
                       DType rounded_to) {
  const OpCase weights{
      .name = op_case.name + " output", .inputs = {index + 1, {output.shape()}}, .run = nullptr};
  const DType dtype = output.dtype();
  return Tensor::from(draw(weights, index, rounded_to).values(), output.shape(), dtype);
}

// `rounded_to`: what the drawn output gradients are rounded to before use, so that runs in
// different precisions get the same.
Outcome run_case(const OpCase& op_case, const Run& run, Precision precision,
                 const std::vector<Values>& values, DType rounded_to, bool backward = true,
                 Device device = kCpu) {
  Bench bench(precision, backward ? 2 : 1, device);
  bench.poison();
  Tape tape;
  if (backward) bench.ctx.tape = &tape;
  std::vector<Var> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CaseInput& input = op_case.inputs[i];
    GradRef grad;
    if (backward && is_differentiable(input)) {
      grad = std::make_shared<Grad>();
      grad->is_parameter = input.kind == CaseInput::Kind::parameter;
      if (grad->is_parameter)
        grad->value = bench.ctx.zeros(input.shape, state_dtype(precision), "gradient");
    }
    inputs.emplace_back(bench.place(values[i], input), grad);
  }
  const std::vector<Var> outputs = run(bench.ctx, inputs);
  Outcome out;
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    out.outputs.push_back(bench.values(outputs[i].value()));
    const bool wanted = outputs[i].requires_grad();
    const Tensor seed = wanted ? output_gradient(op_case, i, outputs[i], rounded_to) : Tensor{};
    out.weights.push_back(wanted ? seed.values() : Values{});
    seeds.push_back(wanted && !device.is_cpu() ? seed.to(device, bench.stream) : seed);
  }
  if (!backward) return out;
  tape.backward(bench.ctx, outputs, seeds);
  for (const Var& input : inputs) {
    const bool given = input.requires_grad() && input.grad()->value.defined();
    out.gradients.push_back(given          ? bench.values(input.grad()->value)
                            : input.grad() ? Values(static_cast<std::size_t>(input.numel()), 0.0)
                                           : Values{});
  }
  return out;
}

// The largest difference relative to the largest entry of `expected`; infinite where they are not
// comparable. Infinities must agree.
double relative_error(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return HUGE_VAL;
  double error = 0, size = kFloor;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isinf(expected[i]) || std::isinf(found[i])) {
      if (found[i] != expected[i]) return HUGE_VAL;
      continue;
    }
    const double difference = std::fabs(found[i] - expected[i]);
    if (std::isnan(difference)) return HUGE_VAL;
    error = std::max(error, difference);
    size = std::max(size, std::fabs(expected[i]));
  }
  return error / size;
}

std::vector<CheckResult> compared(const Outcome& found, const Outcome& expected, double bound,
                                  std::string_view with) {
  std::vector<CheckResult> out;
  if (found.outputs.size() != expected.outputs.size()) {
    return {{cat("number of outputs against ", with), HUGE_VAL, bound}};
  }
  for (std::size_t i = 0; i < found.outputs.size(); ++i) {
    out.push_back({cat("output ", i, " against ", with),
                   relative_error(found.outputs[i], expected.outputs[i]), bound});
  }
  for (std::size_t i = 0; i < found.gradients.size(); ++i) {
    if (found.gradients[i].empty() && expected.gradients[i].empty()) continue;
    out.push_back({cat("gradient of input ", i, " against ", with),
                   relative_error(found.gradients[i], expected.gradients[i]), bound});
  }
  return out;
}

// The sum over outputs of <output gradient, f(values)> after one element moved, by differences of
// outputs rather than of sums, which would lose digits.
double slope(const OpCase& op_case, std::vector<Values>& values, std::size_t input,
             std::size_t element, const std::vector<Values>& weights) {
  double& x = values[input][element];
  const double centre = x;
  const auto at = [&](double moved) {
    x = moved;
    Outcome out = run_case(op_case, op_case.run, Precision::fp64, values, DType::f64, false);
    x = centre;
    return out.outputs;
  };
  const auto far_left = at(centre - 2 * kStep), left = at(centre - kStep);
  const auto right = at(centre + kStep), far_right = at(centre + 2 * kStep);
  double out = 0;
  for (std::size_t o = 0; o < weights.size(); ++o) {
    for (std::size_t i = 0; i < weights[o].size(); ++i) {
      out += weights[o][i] * (8 * (right[o][i] - left[o][i]) - (far_right[o][i] - far_left[o][i]));
    }
  }
  return out / (12 * kStep);
}

}  // namespace

std::vector<CheckResult> check_gradient(const OpCase& op_case) {
  std::vector<Values> values = draw_all(op_case, DType::f64);
  const Outcome analytic = run_case(op_case, op_case.run, Precision::fp64, values, DType::f64);
  std::vector<CheckResult> out;
  for (std::size_t input = 0; input < values.size(); ++input) {
    if (!is_differentiable(op_case.inputs[input])) continue;
    const std::uint64_t n = values[input].size();
    if (n == 0) continue;
    const Permutation order(n, 0, op_case.name);
    double error = 0, size = kFloor;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(n, kMostElements); ++i) {
      const auto element = static_cast<std::size_t>(order.at(i));
      const double numeric = slope(op_case, values, input, element, analytic.weights);
      const double difference = std::fabs(analytic.gradients[input][element] - numeric);
      error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
      size = std::max(size, std::fabs(numeric));
    }
    out.push_back({cat("gradient of input ", input), error / size, 1e-6});
  }
  return out;
}

std::vector<CheckResult> check_composition(const OpCase& op_case, Precision precision) {
  if (!op_case.composition) return {};
  const DType dtype = compute_dtype(precision);
  const std::vector<Values> values = draw_all(op_case, dtype);
  const Outcome fused = run_case(op_case, op_case.run, precision, values, dtype);
  const Outcome plain = run_case(op_case, op_case.composition, precision, values, dtype);
  const double bound = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 2e-2;
  return compared(fused, plain, bound, "composition");
}

std::vector<CheckResult> check_precision(const OpCase& op_case, Precision precision,
                                         Device device) {
  const DType dtype = compute_dtype(precision);
  const std::vector<Values> values = draw_all(op_case, dtype);
  const Outcome found = run_case(op_case, op_case.run, precision, values, dtype, true, device);
  const Outcome expected = run_case(op_case, op_case.run, Precision::fp64, values, dtype);
  return compared(found, expected, dtype == DType::f32 || dtype == DType::f64 ? 1e-5 : 1e-2, "f64");
}

std::vector<CheckResult> check_repeats(const OpCase& op_case, Precision precision, Device device,
                                       int runs) {
  const DType dtype = compute_dtype(precision);
  const std::vector<Values> values = draw_all(op_case, dtype);
  const Outcome first = run_case(op_case, op_case.run, precision, values, dtype, true, device);
  double different = 0;
  for (int run = 1; run < runs; ++run) {
    const Outcome again = run_case(op_case, op_case.run, precision, values, dtype, true, device);
    different += again.outputs == first.outputs && again.gradients == first.gradients ? 0 : 1;
  }
  return {{"runs with other bits", different, 0}};
}

}  // namespace fovea
