#pragma once
// One product as cuBLASLt is told of it, and the algorithm that its heuristic answers first: a pure
// function of the key and the library's version, never of a clock (design D3.10).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/dtype.h"
#include "core/view.h"

namespace fovea::cuda {

// Column-major, as cuBLASLt counts: d [m,n] = op(a) [m,k] op(b) [k,n] (+ d or bias). A row-major
// product is its transpose: the factors change places.
struct GemmKey {
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldd = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_d = 0;  // elements
  std::uint32_t align_a = 256, align_b = 256, align_d = 256;         // bytes
  DType factors = DType::f32, out = DType::f32, bias = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulates = false, has_bias = false,
       tf32 = false;

  auto tied() const {
    return std::tie(m, n, k, lda, ldb, ldd, batch, stride_a, stride_b, stride_d, align_a, align_b,
                    align_d, factors, out, bias, transpose_a, transpose_b, accumulates, has_bias,
                    tf32);
  }
  friend bool operator<(const GemmKey& x, const GemmKey& y) { return x.tied() < y.tied(); }
  // What a tuning table knows the product by: candidates do not depend on alignment past 16 bytes.
  GemmKey for_tuning() const {
    GemmKey key = *this;
    for (std::uint32_t* align : {&key.align_a, &key.align_b, &key.align_d})
      *align = std::min(*align, std::uint32_t{16});
    return key;
  }
};

// Owns cuBLASLt's descriptors of one product.
class GemmPlan {
 public:
  // The algorithm is the heuristic's candidate number `candidate`. Throws DeviceError, which names
  // the sizes, if there is none.
  GemmPlan(void* handle, const GemmKey& key, int candidate = 0);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  void run(void* handle, const void* a, const void* b, void* d, const void* bias, void* workspace,
           void* stream) const;

 private:
  struct Native;  // descriptors and algorithm
  GemmKey key_;
  std::unique_ptr<Native> native_;
};

constexpr std::size_t kGemmWorkspace = std::size_t{32} << 20;
// Candidates that the heuristic is asked for.
constexpr int kGemmCandidates = 8;

// What one stream keeps of cuBLASLt: its handle, workspace and plans.
struct BlasState {
  BlasState();
  ~BlasState();
  BlasState(const BlasState&) = delete;
  BlasState& operator=(const BlasState&) = delete;
  const GemmPlan& plan(const GemmKey& key);
  // From now on products of this key, whatever their alignment past 16 bytes, take that candidate.
  // Throws DeviceError if the heuristic has none of that number.
  void tune(const GemmKey& key, int candidate);
  bool is_tuned(const GemmKey& key) const { return tuned_.count(key.for_tuning()) > 0; }
  // Every product asked for so far, and how often.
  struct Use {
    GemmKey key;
    std::int64_t calls = 0;
  };
  std::vector<Use> uses() const;

  void* handle = nullptr;  // cublasLtHandle_t
  void* workspace = nullptr;

 private:
  struct Entry {
    std::unique_ptr<GemmPlan> plan;
    std::int64_t calls = 0;
  };
  std::map<GemmKey, Entry> plans_;
  std::map<GemmKey, int> tuned_;  // by GemmKey::for_tuning()
};

// The state of a CUDA stream, made when it is first asked for.
BlasState& blas_state(StreamRef stream);
// "13.1.0": of the library that runs.
std::string cublaslt_version();

}  // namespace fovea::cuda
