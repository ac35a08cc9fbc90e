// AdamW on CUDA against f64 on the CPU, with and without learning rates of blocks' own.

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/bench.h"
#include "core/cuda_runtime.h"
#include "kernels/optim.h"
#include "skip.h"

using namespace fovea;
using test::Bench;

namespace {

using Values = std::vector<double>;

constexpr Device kGpu{Device::Kind::cuda, 0};
constexpr AdamWArgs kAdam{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
// Not a multiple of a thread's elements.
constexpr std::int64_t kSize = 40 * kDecayBlock + 3, kBlocks = 41;

struct Outcome {
  Values master, compute, first, second;
  bool operator==(const Outcome&) const = default;
};

// Three updates. `turns`: factors of the blocks; none: the argument is left empty. `offset`: of the
// buffers in memory, so that they are not aligned.
Outcome updated(Device device, DType state, DType computed, const Values& turns,
                std::int64_t offset = 0) {
  const Bench bench;
  Stream stream(device, 1);
  std::vector<Tensor> kept;
  const auto there = [&](const Tensor& host) {
    const Tensor whole = Tensor::empty({host.numel() + offset}, host.dtype(), device);
    kept.push_back(whole);
    const Tensor part = whole.slice(0, offset, offset + host.numel());
    transfer(part, host, stream);
    return part;
  };
  const auto zeros = [&](DType dtype) {
    return there(Tensor::from(Values(static_cast<std::size_t>(kSize)), {kSize}, dtype));
  };
  const Tensor master = there(Tensor::from(bench.drawn("w", {kSize}).values(), {kSize}, state)),
               gradient = there(Tensor::from(bench.drawn("g", {kSize}).values(), {kSize}, state)),
               compute = zeros(computed), first = zeros(state), second = zeros(state);
  Values decays, factors;
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    decays.push_back(static_cast<double>(i % 2));
    if (!turns.empty()) factors.push_back(turns[static_cast<std::size_t>(i) % turns.size()]);
  }
  const Tensor decay = Tensor::from(decays, {kBlocks}, DType::u8).to(device, stream),
               rates = turns.empty()
                           ? Tensor()
                           : Tensor::from(factors, {kBlocks}, DType::f32).to(device, stream);
  for (int t = 1; t <= 3; ++t) {
    const StepScalars now{.lr = 0.01,
                          .correction1 = 1 - std::pow(kAdam.beta1, t),
                          .correction2 = 1 - std::pow(kAdam.beta2, t)};
    const Tensor host = Tensor::empty({kStepScalars}, DType::f64, kCpu);
    *host.data<StepScalars>() = now;
    const Tensor scalars = host.to(device, stream);
    FOVEA_ON(device,
             adamw_step(stream.ref(), master.view(), compute.view(), first.view(), second.view(),
                        gradient.view(), decay.view(), rates.view(), scalars.view(), kAdam));
  }
  const auto here = [&](const Tensor& t) { return t.to(kCpu, stream).values(); };
  return {here(master), here(compute), here(first), here(second)};
}

double largest_gap(const Values& a, const Values& b) {
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    out = std::max(out, std::fabs(a[i] - b[i]));
  return out;
}

}  // namespace

TEST_CASE("AdamW on a GPU takes each block's factor as the CPU does in f64") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const Values& turns : {Values{}, Values{30, 1, 0.25}}) {
    const Outcome exact = updated(kCpu, DType::f64, DType::f32, turns);
    for (const std::int64_t offset : {0, 1}) {
      CAPTURE(offset);
      const Outcome found = updated(kGpu, DType::f32, DType::f32, turns, offset);
      CHECK(largest_gap(found.master, exact.master) < 1e-5);
      CHECK(largest_gap(found.first, exact.first) < 1e-6);
      CHECK(largest_gap(found.second, exact.second) < 1e-6);
      CHECK(found.compute == found.master);
    }
  }
}

TEST_CASE("factors of one have the bits of none on a GPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const DType computed : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t offset : {0, 1}) {
      const Outcome none = updated(kGpu, DType::f32, computed, {}, offset);
      CHECK(updated(kGpu, DType::f32, computed, {1}, offset) == none);
      const Outcome some = updated(kGpu, DType::f32, computed, {1, 3}, offset);
      CHECK(some.first == none.first);
      for (std::size_t i = 0; i < some.master.size(); ++i)
        CHECK((some.master[i] == none.master[i]) == (i / 64 % 2 == 0));
    }
  }
}
