// The contract of every op, driven by the registry: one case, many uses.

#include <cstdio>
#include <set>

#include <doctest/doctest.h>

#include "autograd/op_registry.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/elementwise.h"
#include "autograd/tape.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "skip.h"

using namespace fovea;

namespace {

// Runs a check over every case of every op.
template <class F>
void for_all_cases(F&& check) {
  for (const OpSpec& spec : op_specs()) {
    for (const OpCase& op_case : spec.cases()) {
      const std::string name = cat(spec.name, ", ", op_case.name);
      INFO(name);
      for (const CheckResult& result : check(op_case)) {
        INFO(result.what, ": error ", result.error, ", bound ", result.bound);
        CHECK(result.passed());
      }
    }
  }
}

// What one forward and backward takes on a device. Ids are 0 and masks 1: a device that cannot look
// must assume that every row counts.
MemoryStats memory_of(const OpCase& op_case, Device device) {
  Stream stream(device);
  CachingAllocator memory{memory_source(device)};
  Ctx ctx{.device = device, .stream = stream, .activations = memory, .training = true};
  Tape tape;
  ctx.tape = &tape;
  std::vector<Var> inputs;
  for (const CaseInput& input : op_case.inputs) {
    const bool real =
        input.kind == CaseInput::Kind::real || input.kind == CaseInput::Kind::parameter;
    const DType dtype = real                                 ? DType::f32
                        : input.kind == CaseInput::Kind::ids ? DType::i32
                                                             : DType::u8;
    const Tensor value = ctx.empty(input.shape, dtype, "input");
    FOVEA_ON(device,
             fill(stream.ref(), value.view(), input.kind == CaseInput::Kind::ids ? 0.0 : 1.0));
    GradRef grad = real && input.differentiable ? std::make_shared<Grad>() : nullptr;
    if (grad && input.kind == CaseInput::Kind::parameter) {
      grad->is_parameter = true;
      grad->value = ctx.zeros(input.shape, DType::f32, "gradient");
    }
    inputs.emplace_back(value, grad);
  }
  const std::vector<Var> outputs = op_case.run(ctx, inputs);
  std::vector<Tensor> seeds;
  for (const Var& output : outputs) {
    seeds.push_back(output.requires_grad() ? ctx.zeros(output.shape(), output.dtype(), "seed")
                                           : Tensor{});
  }
  tape.backward(ctx, outputs, seeds);
  return memory.stats();
}

}  // namespace

TEST_CASE("the registry is in alphabetical order and every op has cases with names of their own") {
  std::string_view previous;
  for (const OpSpec& spec : op_specs()) {
    INFO(std::string(spec.name));
    CHECK(previous < spec.name);
    previous = spec.name;
    CHECK(!spec.summary.empty());
    std::set<std::string> names;
    for (const OpCase& op_case : spec.cases()) {
      CHECK(names.insert(op_case.name).second);
      CHECK(op_case.run != nullptr);
    }
    CHECK(!names.empty());
  }
}

TEST_CASE("every gradient agrees with central differences in f64") {
  for_all_cases(check_gradient);
}

TEST_CASE("every fused op equals its composition in f64") {
  for_all_cases([](const OpCase& c) { return check_composition(c, Precision::fp64); });
}

TEST_CASE("every fused op equals its composition in f32") {
  for_all_cases([](const OpCase& c) { return check_composition(c, Precision::fp32); });
}

TEST_CASE("every op in f32 agrees with f64, forward and backward") {
  for_all_cases([](const OpCase& c) { return check_precision(c, Precision::fp32); });
}

TEST_CASE("every op in bf16-mixed agrees with f64, forward and backward") {
  for_all_cases([](const OpCase& c) { return check_precision(c, Precision::bf16_mixed); });
}

TEST_CASE("every op in fp16-mixed agrees with f64, forward and backward") {
  for_all_cases([](const OpCase& c) { return check_precision(c, Precision::fp16_mixed); });
}

TEST_CASE("every op runs on meta, forward and backward, and predicts its memory on the CPU") {
  for (const OpSpec& spec : op_specs()) {
    for (const OpCase& op_case : spec.cases()) {
      const std::string name = cat(spec.name, ", ", op_case.name);
      INFO(name);
      const MemoryStats real = memory_of(op_case, kCpu), meta = memory_of(op_case, kMeta);
      CHECK(meta.peak == real.peak);
    }
  }
}

namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

void check_on_cuda(Precision precision) {
  for (const OpSpec& spec : op_specs()) {
    for (const OpCase& op_case : spec.cases()) {
      CAPTURE(spec.name);
      CAPTURE(op_case.name);
      try {
        for (const CheckResult& result : check_precision(op_case, precision, kGpu)) {
          INFO(result.what, ": error ", result.error, ", bound ", result.bound);
          CHECK(result.passed());
        }
      } catch (const Error& e) {
        FAIL_CHECK(std::string(e.what()));
      }
    }
  }
}

}  // namespace

// A test a precision: compute-sanitizer's racecheck takes minutes, and can watch all three at once.
TEST_CASE("every op on CUDA in f32 agrees with f64 on the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  check_on_cuda(Precision::fp32);
}

TEST_CASE("every op on CUDA in bf16-mixed agrees with f64 on the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  check_on_cuda(Precision::bf16_mixed);
}

TEST_CASE("every op on CUDA in fp16-mixed agrees with f64 on the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  check_on_cuda(Precision::fp16_mixed);
}

TEST_CASE("every op on CUDA gives the same bits 30 times") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const OpSpec& spec : op_specs()) {
    for (const OpCase& op_case : spec.cases()) {
      for (const Precision precision : {Precision::fp32, Precision::bf16_mixed}) {
        CAPTURE(spec.name);
        CAPTURE(op_case.name);
        CAPTURE(std::string(name_of(precision)));
        try {
          for (const CheckResult& result : check_repeats(op_case, precision, kGpu, 30))
            CHECK(result.error == 0);
        } catch (const Error& e) {
          FAIL_CHECK(std::string(e.what()));
        }
      }
    }
  }
}

// Heads enough that one block walks each whole (flash_backward's one pass); too many for the cases
// that are differentiated numerically.
TEST_CASE("attention of many heads on CUDA agrees with f64 on the CPU, and repeats") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const bool causal : {true, false}) {
    for (const std::int64_t tokens : {70, 300}) {
      const OpCase many{
          .name = cat("many heads ", tokens, causal ? " causal" : ""),
          .inputs = {{{2, tokens, 3 * 60 * 64}}},
          .run = [causal](Ctx& c, std::span<const Var> in) {
            const std::vector<Var> parts = split_heads(c, in[0], {{60, 64}, {60, 64}, {60, 64}});
            return std::vector{
                flash_attention(c, parts[0], parts[1], parts[2], Var(), {.causal = causal}).o};
          }};
      for (const Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed}) {
        for (const CheckResult& result : check_precision(many, precision, kGpu)) {
          INFO(many.name, ", ", result.what, ": error ", result.error, ", bound ", result.bound);
          CHECK(result.passed());
        }
        CHECK(check_repeats(many, precision, kGpu, 10)[0].error == 0);
      }
    }
  }
}
