#pragma once
// Every differentiable op, where its code stands, and its cases. One case, four uses: value,
// gradient, CPU/CUDA parity, timing.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// How an input of a case is drawn: from a named stream, never from a clock.
struct CaseInput {
  enum class Kind { real, parameter, ids, mask };
  Shape shape;
  Kind kind = Kind::real;      // parameter: its gradient is accumulated in a buffer
  double low = -1, high = 1;   // reals uniform in [low, high); ids in [low, high)
  bool differentiable = true;  // ids and masks never are
};

struct OpCase {
  std::string name;  // "bias, 3 rows": unique within its op
  std::vector<CaseInput> inputs;
  // Runs the op. Tensors without gradients (ids, masks) arrive as Vars too.
  std::function<std::vector<Var>(Ctx&, std::span<const Var>)> run;
  // The composition of plain ops that a fused op must equal, or null.
  std::function<std::vector<Var>(Ctx&, std::span<const Var>)> composition = nullptr;
  double flops = 0;  // of one forward, 0: memory-bound
};

struct OpSpec {
  std::string_view name;
  std::string_view summary;
  std::string_view header;    // "src/autograd/ops/linear.h"
  std::string_view autograd;  // "src/autograd/ops/linear.cpp"
  std::string_view kernels;   // "src/kernels/gemm.h"
  std::string_view cpu;       // "src/kernels/cpu/gemm.cpp"
  std::string_view cuda;      // "" while there is none
  std::vector<OpCase> (*cases)();
};

// In alphabetical order. Each family's list stands beside its ops:
// src/autograd/ops/<family>_cases.cpp.
const std::vector<OpSpec>& op_specs();

// One family's contribution, declared by op_registry.cpp for each.
using OpList = std::vector<OpSpec>;

// The result of checking one case.
struct CheckResult {
  std::string what;  // "gradient of input 1", "value against composition"
  double error = 0, bound = 0;
  bool passed() const { return error <= bound; }
};

// Central differences in f64: max|a - n| <= 1e-6 max(max|n|, 1e-3) for every differentiable input.
std::vector<CheckResult> check_gradient(const OpCase& op_case);
// Values and gradients against the composition: f64 to 1e-12, f32 to 1e-5, relative to the largest
// entry.
std::vector<CheckResult> check_composition(const OpCase& op_case, Precision precision);
// f32, fp16-mixed or bf16-mixed on a device against f64 on the CPU, forward and backward, on inputs
// rounded to the compute dtype first; 1e-5 or 1e-2 of the largest entry.
std::vector<CheckResult> check_precision(const OpCase& op_case, Precision precision,
                                         Device device = kCpu);
// `runs` runs on a device: every output and gradient has the bits of the first.
std::vector<CheckResult> check_repeats(const OpCase& op_case, Precision precision, Device device,
                                       int runs);

}  // namespace fovea
