#include "study/bench_gemm.h"

#include <cstdio>

#include "core/text.h"
#include "study/gpu_state.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

double terms(std::int64_t calls, double each) {
  return static_cast<double>(calls) * each;
}

}  // namespace

double ProductTime::flops() const {
  return 2 * static_cast<double>(key.m * key.n) * static_cast<double>(key.k * key.batch);
}

std::string name_of(const cuda::GemmKey& key) {
  return cat("m=", key.m, " n=", key.n, " k=", key.k,
             key.batch > 1 ? cat(" batch=", key.batch) : "", " ", key.transpose_a ? "T" : "N",
             key.transpose_b ? "T" : "N", " ", fovea::name_of(key.factors), " to ",
             fovea::name_of(key.out), key.has_bias ? " +bias" : "", key.accumulates ? " +=" : "",
             key.tf32 ? " tf32" : "");
}

train::TuningTable with_timed(const train::TuningTable& old, const std::string& gpu,
                              const std::vector<ProductTime>& times) {
  train::TuningTable now{gpu, cublaslt_version(), {}};
  std::vector<cuda::GemmKey> timed;
  for (const ProductTime& time : times) {
    timed.push_back(time.key);
    if (time.best != 0) now.products.push_back({time.key, time.best, time.best_ms, time.ms});
  }
  return train::merged(old, now, timed);
}

std::string json_of(const std::vector<ProductTime>& times) {
  std::vector<std::string> out;
  for (const ProductTime& time : times) {
    train::JsonObject record;
    record.add("product", name_of(time.key)).add("m", time.key.m).add("n", time.key.n);
    record.add("k", time.key.k).add("batch", time.key.batch).add("calls", time.calls);
    record.add("ms", time.ms).add("flops", time.flops());
    record.add("rate", time.flops() / time.ms * 1e3);
    record.add("candidates", time.candidates).add("best", time.best);
    record.add("best_ms", time.best_ms);
    add_to(record, time.gpu);
    out.push_back(record.str());
  }
  return cat("[", join(out, ","), "]");
}

std::string text_of(const std::vector<ProductTime>& times) {
  char line[200];
  std::string out =
      "product                                            calls   first ms  TFLOP/s   best (of)    "
      "best ms";
  double first = 0, best = 0, flops = 0;
  for (const ProductTime& time : times) {
    std::snprintf(line, sizeof line, "\n%-50s %5lld %10.4f %8.0f %6d (%d) %10.4f",
                  name_of(time.key).c_str(), static_cast<long long>(time.calls), time.ms,
                  time.flops() / time.ms / 1e9, time.best, time.candidates, time.best_ms);
    out += line + text_of(time.gpu);
    first += terms(time.calls, time.ms);
    best += terms(time.calls, time.best_ms);
    flops += terms(time.calls, time.flops());
  }
  std::snprintf(
      line, sizeof line,
      "\na step: %.2f TFLOP in %.2f ms (%.0f TFLOP/s) with the first, %.2f ms with the best",
      flops / 1e12, first, first > 0 ? flops / first / 1e9 : 0, best);
  return out + line;
}

}  // namespace fovea::study
