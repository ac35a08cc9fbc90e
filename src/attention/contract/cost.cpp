// What a call costs, counted on meta as the CPU and as a GPU, which need not be there.

#include <algorithm>
#include <cmath>

#include "attention/contract/checks.h"
#include "autograd/tape.h"
#include "core/text.h"

namespace fovea::attention::contract {

namespace {

struct Counted {
  double forward = 0, backward = 0;  // FLOPs
  double peak = 0;                   // bytes, parameters and plans included
};

Counted count(const Trial& trial, Device device) {
  const auto persistent = [&] {
    return static_cast<double>(persistent_allocator(device).stats().live);
  };
  const double before = persistent();
  const AttentionConfig made = trial.projected();
  Standalone alone(*trial.spec, made, trial.options, Precision::fp32, device);
  Stream stream(device);
  CachingAllocator memory(memory_source(device));
  Tape tape;
  Ctx ctx{.device = device, .stream = stream, .activations = memory};
  ctx.tape = &tape;
  alone.want_gradients();
  const auto meta = [&](Shape shape) { return leaf(ctx.empty(shape, DType::f32, "input")); };
  const Trial& t = trial;
  AttentionInput in;
  in.q = meta({t.batch, t.heads, t.queries, made.qk_dim});
  in.k = meta({t.batch, t.kv_heads, t.keys, made.qk_dim});
  in.v = meta({t.batch, t.kv_heads, t.keys, made.v_dim});
  in.x = meta({t.batch, t.queries, std::int64_t{t.heads} * t.v_dim});
  in.q_global = meta(in.q.shape());
  in.k_global = meta(in.k.shape());
  in.v_global = meta(in.v.shape());
  in.q_unrotated = in.q;
  in.k_unrotated = in.k;
  Counted out;
  const AttentionOutput result = alone.method().forward(ctx, in);
  out.forward = std::exchange(stream.cost().flops, 0.0);
  tape.backward(ctx, result.o, ctx.empty(result.o.shape(), DType::f32, "dout"));
  out.backward = stream.cost().flops;
  out.peak = static_cast<double>(memory.stats().peak) + persistent() - before;
  return out;
}

Cost formula(const Trial& trial) {
  const config::Node options =
      config::complete(trial.options, trial.spec->options, "model.attention");
  return trial.spec->cost(trial.config(), options, trial.queries, trial.keys);
}

constexpr Device kCounters[] = {kMeta, kMetaCuda};

// The exponent of growth between two sizes.
double slope(double small, double large, double sizes) {
  return std::log(large / small) / std::log(sizes);
}

}  // namespace

void check_cost(const Trial& form, Report& report) {
  if (form.spec->cost == nullptr) return report.fail("declares its cost", "cost is null");
  Trial trial = form.sized(128);
  if (form.cross) trial.queries = 64;
  const Cost cost = formula(trial);
  const auto batch = static_cast<double>(trial.batch);
  const auto relative = [](double said, double counted) {
    return std::fabs(said - counted) / std::max(counted, 1.0);
  };
  double forward = 0, backward = 0;
  for (const Device device : kCounters) {
    const Counted counted = count(trial, device);
    forward = std::max(forward, relative(batch * cost.useful_forward, counted.forward));
    backward = std::max(backward, relative(batch * cost.useful_backward, counted.backward));
  }
  report.add("forward FLOPs of the formula against the count", forward, 0.05);
  report.add("backward FLOPs of the formula against the count", backward, 0.05);
  report.add("useful FLOPs beyond the executed ones",
             std::max(cost.useful_forward - cost.executed_forward, 0.0), 0);
}

void check_growth(const Trial& form, Report& report) {
  constexpr int kSmall = 4096, kLarge = 32768;
  constexpr double kSizes = double{kLarge} / kSmall, kLinear = 1.1;
  const auto sized = [&](int n) {
    Trial trial = form.sized(n);
    trial.batch = 1;
    trial.max_len = n;
    return trial;
  };
  const std::string between = cat(" from ", kSmall, " to ", kLarge, " tokens");
  double memory = 0;
  for (const Device device : kCounters) {
    memory = std::max(memory, slope(count(sized(kSmall), device).peak,
                                    count(sized(kLarge), device).peak, kSizes));
  }
  report.add(cat("exponent of the memory's growth", between), memory, kLinear);
  const auto flops = [](const Cost& cost) { return cost.useful_forward + cost.useful_backward; };
  report.add(cat("exponent of the FLOPs' growth", between),
             slope(flops(formula(sized(kSmall))), flops(formula(sized(kLarge))), kSizes), kLinear);
}

}  // namespace fovea::attention::contract
