// The part of bench_gemm.h that talks to cuBLASLt.

#include <algorithm>
#include <map>
#include <memory>

#include "core/cuda_queue.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/cuda/gemm_plan.h"
#include "study/bench_gemm.h"
#include "study/bench_task.h"
#include "study/rates.h"
#include "study/timing.h"
#include "train/trainer.h"

namespace fovea::study {

namespace {

// What one step asks cuBLASLt for, alignment aside.
std::map<cuda::GemmKey, std::int64_t> products_of(const BenchShape& shape,
                                                  const BenchSettings& settings) {
  const train::RunConfig config = bench_config(shape, settings);
  const Device device = train::device_of(config.train);
  if (!device.is_cuda())
    throw DeviceError("fovea bench gemm times cuBLASLt's products and needs a GPU");
  std::map<cuda::GemmKey, std::int64_t> out;
  train::Trainer trainer(config, device, make_bench_task(shape, config));
  trainer.step();
  trainer.stream().synchronize();
  const auto& queue = *static_cast<const CudaQueue*>(trainer.stream().ref().native);
  FOVEA_ASSERT(queue.blas != nullptr);
  for (const cuda::BlasState::Use& use : static_cast<const cuda::BlasState*>(queue.blas)->uses())
    out[use.key.for_tuning()] += use.calls;
  return out;
}

// Elements that a column-major matrix of so many columns reaches, over its batch.
std::int64_t reach(std::int64_t ld, std::int64_t cols, std::int64_t batch, std::int64_t stride) {
  return ld * cols + (batch - 1) * stride;
}

// Random factors for one product.
struct Factors {
  Tensor a, b, d, bias;

  Factors(Stream& stream, const cuda::GemmKey& key)
      : a(random_tensor(stream,
                        {reach(key.lda, key.transpose_a ? key.m : key.k, key.batch, key.stride_a)},
                        key.factors)),
        b(random_tensor(stream,
                        {reach(key.ldb, key.transpose_b ? key.k : key.n, key.batch, key.stride_b)},
                        key.factors)),
        d(random_tensor(stream, {reach(key.ldd, key.n, key.batch, key.stride_d)}, key.out)),
        bias(key.has_bias ? random_tensor(stream, {key.m}, key.bias) : Tensor()) {}
};

// The median time of that candidate; negative if there is none such, or it does not run.
double time_candidate(Stream& stream, const cuda::BlasState& blas, const cuda::GemmKey& key,
                      const Factors& factors, int candidate, const TimingPlan& timing) {
  const auto& queue = *static_cast<const CudaQueue*>(stream.ref().native);
  try {
    const cuda::GemmPlan plan(blas.handle, key, candidate);
    const auto work = [&] {
      plan.run(blas.handle, factors.a.view().data, factors.b.view().data, factors.d.view().data,
               factors.bias.view().data, blas.workspace, queue.stream);
    };
    return time_on(stream, work, timing).ms;
  } catch (const DeviceError&) {
    return -1;
  }
}

ProductTime time_product(Stream& stream, const cuda::BlasState& blas, const cuda::GemmKey& key,
                         std::int64_t calls, const ProductOptions& options) {
  const Factors factors(stream, key);
  ProductTime out;
  out.key = key;
  out.calls = calls;
  out.candidates = 0;
  const GpuWatch watch(stream.device());
  TimingPlan plan{.warm_seconds = options.seconds / 2, .seconds = options.seconds};
  const int most = options.tune ? cuda::kGemmCandidates : 1;
  for (int candidate = 0; candidate < most; ++candidate) {
    if (candidate == 0) plan.before_end = [&] { out.gpu = watch.now(); };
    const double ms = time_candidate(stream, blas, key, factors, candidate, plan);
    plan.before_end = nullptr;
    if (candidate == 0 && ms < 0) throw DeviceError(cat("cuBLASLt cannot run ", name_of(key)));
    if (ms < 0) continue;
    ++out.candidates;
    if (candidate == 0) out.ms = out.best_ms = ms;
    if (ms < out.best_ms) {
      out.best = candidate;
      out.best_ms = ms;
    }
  }
  // Less than that is noise: the first heuristic needs no table.
  constexpr double kWorthIt = 0.99;
  if (out.best_ms > kWorthIt * out.ms) {
    out.best = 0;
    out.best_ms = out.ms;
  }
  return out;
}

}  // namespace

std::vector<ProductTime> bench_products(const BenchShape& shape, const BenchSettings& settings,
                                        const ProductOptions& options) {
  const BenchShape at = sized(shape, settings);
  const std::map<cuda::GemmKey, std::int64_t> products = products_of(at, settings);
  const Device device = train::device_of(bench_config(at, settings).train);
  persistent_allocator(device).trim();
  Stream stream(device);
  const cuda::BlasState blas;
  std::vector<ProductTime> out;
  out.reserve(products.size());
  for (const auto& [key, calls] : products)
    out.push_back(time_product(stream, blas, key, calls, options));
  std::stable_sort(out.begin(), out.end(), [](const ProductTime& x, const ProductTime& y) {
    return static_cast<double>(x.calls) * x.ms > static_cast<double>(y.calls) * y.ms;
  });
  return out;
}

}  // namespace fovea::study
