#include "kernels/cuda/gemm_plan.h"

#include <array>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "core/error.h"
#include "core/text.h"
#include "kernels/cuda/device_bytes.h"

namespace fovea::cuda {

namespace {

cudaDataType_t native(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

std::string text(const GemmKey& key) {
  return cat("m=", key.m, " n=", key.n, " k=", key.k, " batch=", key.batch, " ",
             name_of(key.factors), " to ", name_of(key.out), key.transpose_a ? " T" : " N",
             key.transpose_b ? "T" : "N", " ld ", key.lda, " ", key.ldb, " ", key.ldd);
}

[[noreturn]] void fail(cublasStatus_t status, const char* call, const GemmKey& key) {
  const std::string what = cat(call, ": ", cublasLtGetStatusString(status), " (", text(key), ")");
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(what);
  throw DeviceError(what);
}

}  // namespace

struct GemmPlan::Native {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Native() = default;
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  ~Native() {
    for (cublasLtMatrixLayout_t layout : {a, b, d})
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
  }
};

GemmPlan::GemmPlan(void* handle, const GemmKey& key, int candidate)
    : key_(key), native_(std::make_unique<Native>()) {
  const auto check = [&](cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) fail(status, call, key);
  };
  const cublasComputeType_t compute =
      key.factors == DType::f32 && key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&native_->product, compute, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const auto describe = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(native_->product, what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  describe(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.has_bias) {
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, native(key.bias));
  }
  const auto lay_out = [&](cublasLtMatrixLayout_t& layout, DType dtype, std::int64_t rows,
                           std::int64_t cols, std::int64_t ld, std::int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&layout, native(dtype), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), ld),
          "cublasLtMatrixLayoutCreate");
    if (key.batch == 1) return;
    const auto batch = static_cast<std::int32_t>(key.batch);
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  };
  lay_out(native_->a, key.factors, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k,
          key.lda, key.stride_a);
  lay_out(native_->b, key.factors, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n,
          key.ldb, key.stride_b);
  lay_out(native_->d, key.out, key.m, key.n, key.ldd, key.stride_d);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kGemmWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_d);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_d);
  std::array<cublasLtMatmulHeuristicResult_t, kGemmCandidates> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      static_cast<cublasLtHandle_t>(handle), native_->product, native_->a, native_->b, native_->d,
      native_->d, preference, kGemmCandidates, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count <= candidate) fail(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", key);
  native_->algorithm = found[static_cast<std::size_t>(candidate)].algo;
}

GemmPlan::~GemmPlan() = default;

void GemmPlan::run(void* handle, const void* a, const void* b, void* d, const void* bias,
                   void* workspace, void* stream) const {
  const Native& n = *native_;
  if (bias != nullptr) {
    const cublasStatus_t status = cublasLtMatmulDescSetAttribute(
        n.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status != CUBLAS_STATUS_SUCCESS) fail(status, "cublasLtMatmulDescSetAttribute", key_);
  }
  const float alpha = 1, beta = key_.accumulates ? 1 : 0;
  const cublasStatus_t status = cublasLtMatmul(
      static_cast<cublasLtHandle_t>(handle), n.product, &alpha, a, n.a, b, n.b, &beta, d, n.d, d,
      n.d, &n.algorithm, workspace, kGemmWorkspace, static_cast<cudaStream_t>(stream));
  if (status != CUBLAS_STATUS_SUCCESS) fail(status, "cublasLtMatmul", key_);
}

// 130100 is 13.1.0.
std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

BlasState::BlasState() {
  cublasLtHandle_t made = nullptr;
  const cublasStatus_t status = cublasLtCreate(&made);
  const std::string what = cat("cublasLtCreate: ", cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(what);
  if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError(what);
  try {
    workspace = device_bytes(kGemmWorkspace, "cuBLASLt's workspace");
  } catch (...) {
    cublasLtDestroy(made);
    throw;
  }
  handle = made;
}

BlasState::~BlasState() {
  plans_.clear();
  cudaFree(workspace);
  cudaGetLastError();
  cublasLtDestroy(static_cast<cublasLtHandle_t>(handle));
}

const GemmPlan& BlasState::plan(const GemmKey& key) {
  Entry& own = plans_[key];
  if (!own.plan) {
    const auto tuned = tuned_.find(key.for_tuning());
    // A tuned product is planned as it was when its candidates were numbered.
    own.plan = tuned == tuned_.end()
                   ? std::make_unique<GemmPlan>(handle, key)
                   : std::make_unique<GemmPlan>(handle, tuned->first, tuned->second);
  }
  ++own.calls;
  return *own.plan;
}

void BlasState::tune(const GemmKey& key, int candidate) {
  const GemmPlan exists(handle, key.for_tuning(), candidate);
  tuned_[key.for_tuning()] = candidate;
  for (auto& [made_for, entry] : plans_) {
    if (!(made_for.for_tuning() < key.for_tuning()) && !(key.for_tuning() < made_for.for_tuning()))
      entry.plan = nullptr;
  }
}

std::vector<BlasState::Use> BlasState::uses() const {
  std::vector<Use> out;
  for (const auto& [key, entry] : plans_)
    out.push_back({key, entry.calls});
  return out;
}

}  // namespace fovea::cuda
