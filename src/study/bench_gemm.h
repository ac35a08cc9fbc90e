#pragma once
// `fovea bench gemm`: every matrix product of one training step, and what the best of cuBLASLt's
// candidates would gain.

#include <cstdint>
#include <string>
#include <vector>

#include "study/bench_shape.h"
#include "study/gpu_state.h"
#include "train/tuning_table.h"

namespace fovea::study {

struct ProductTime {
  cuda::GemmKey key;       // GemmKey::for_tuning()
  std::int64_t calls = 0;  // in one step
  double ms = 0;           // of one call with the heuristic's first answer, sustained
  int best = 0;            // the fastest candidate, and its time; the first if nothing was tuned
  double best_ms = 0;
  int candidates = 1;  // that were tried
  GpuState gpu;        // during the first answer

  double flops() const;  // of one call
};

struct ProductOptions {
  bool tune = false;
  double seconds = 0.25;  // sustained, a candidate; half of it again before, to warm up
};

// Makes one step of the shape on the GPU to see its products, then times each of them on random
// numbers. Largest share of the step first. Throws DeviceError without a GPU.
std::vector<ProductTime> bench_products(const BenchShape& shape, const BenchSettings& settings,
                                        const ProductOptions& options);

// "m=2304 n=65536 k=768 TN bf16 to bf16 +bias".
std::string name_of(const cuda::GemmKey& key);
// `old` with what was timed now: its products have left it, and those whose best candidate is not
// the first are in it. Of another GPU or version it counts for nothing.
train::TuningTable with_timed(const train::TuningTable& old, const std::string& gpu,
                              const std::vector<ProductTime>& times);

std::string json_of(const std::vector<ProductTime>& times);  // a list
std::string text_of(const std::vector<ProductTime>& times);

}  // namespace fovea::study
