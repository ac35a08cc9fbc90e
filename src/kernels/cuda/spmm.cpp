// Sparse products through cuSPARSE's generic interface.
//
// cuSPARSE multiplies sparse by dense: y^T [out, rows] = a [out, in] x^T [in, rows], where
// row-major x and y are column-major x^T and y^T. Algorithm CSR_ALG3 with an operand that is not
// transposed is the one whose bits are promised to be the same every time; so a product with a^T
// takes the compressed rows of a^T. cusparseSpMM_preprocess is not called: it ties a buffer to the
// contents of the index arrays, which the plans below, known by their sizes, do not see.

#include "kernels/spmm.h"

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <cusparse.h>

#include "core/cuda_queue.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::cuda {

// Of launch.cuh, which only CUDA sources read.
void* scratch(StreamRef stream, std::size_t bytes, const char* launcher);
[[noreturn]] void refuse(const char* launcher, DType dtype);

namespace {

constexpr cusparseOperation_t kAsIs = CUSPARSE_OPERATION_NON_TRANSPOSE;
constexpr cusparseSpMMAlg_t kAlgorithm = CUSPARSE_SPMM_CSR_ALG3;

void check(cusparseStatus_t status, const char* call) {
  if (status == CUSPARSE_STATUS_SUCCESS) return;
  const std::string what =
      cat(call, ": ", cusparseGetErrorName(status), ": ", cusparseGetErrorString(status));
  const bool no_memory =
      status == CUSPARSE_STATUS_ALLOC_FAILED || status == CUSPARSE_STATUS_INSUFFICIENT_RESOURCES;
  if (no_memory) throw OutOfMemory(what);
  throw DeviceError(what);
}

cudaDataType native(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      refuse("csr_spmm", dtype);
  }
}

struct Key {
  std::int64_t rows = 0, in = 0, out = 0, entries = 0;
  DType dtype = DType::f32;
  auto tied() const { return std::tie(rows, in, out, entries, dtype); }
  friend bool operator<(const Key& a, const Key& b) { return a.tied() < b.tied(); }
};

struct Call {
  View y, x, offsets, columns, values;
};

// cuSPARSE's descriptors of one product; addresses are set before every call.
class Plan {
 public:
  Plan(cusparseHandle_t handle, const Key& key, const Call& call) {
    const cudaDataType type = native(key.dtype);
    check(cusparseCreateCsr(&a_, key.out, key.in, key.entries, call.offsets.data, call.columns.data,
                            call.values.data, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, type),
          "cusparseCreateCsr");
    check(cusparseCreateDnMat(&x_, key.in, key.rows, key.in, call.x.data, type, CUSPARSE_ORDER_COL),
          "cusparseCreateDnMat");
    check(
        cusparseCreateDnMat(&y_, key.out, key.rows, key.out, call.y.data, type, CUSPARSE_ORDER_COL),
        "cusparseCreateDnMat");
    check(cusparseSpMM_bufferSize(handle, kAsIs, kAsIs, &kOne, a_, x_, &kZero, y_, CUDA_R_32F,
                                  kAlgorithm, &buffer_bytes_),
          "cusparseSpMM_bufferSize");
  }
  ~Plan() {
    if (y_ != nullptr) cusparseDestroyDnMat(y_);
    if (x_ != nullptr) cusparseDestroyDnMat(x_);
    if (a_ != nullptr) cusparseDestroySpMat(a_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(cusparseHandle_t handle, StreamRef stream, const Call& call) const {
    check(cusparseCsrSetPointers(a_, call.offsets.data, call.columns.data, call.values.data),
          "cusparseCsrSetPointers");
    check(cusparseDnMatSetValues(x_, call.x.data), "cusparseDnMatSetValues");
    check(cusparseDnMatSetValues(y_, call.y.data), "cusparseDnMatSetValues");
    void* const buffer = buffer_bytes_ == 0 ? nullptr : scratch(stream, buffer_bytes_, "csr_spmm");
    check(cusparseSpMM(handle, kAsIs, kAsIs, &kOne, a_, x_, &kZero, y_, CUDA_R_32F, kAlgorithm,
                       buffer),
          "cusparseSpMM");
  }

 private:
  static constexpr float kOne = 1, kZero = 0;
  cusparseSpMatDescr_t a_ = nullptr;
  cusparseDnMatDescr_t x_ = nullptr, y_ = nullptr;
  std::size_t buffer_bytes_ = 0;
};

// What one stream keeps of cuSPARSE.
class SparseState {
 public:
  explicit SparseState(const CudaQueue& queue) {
    check(cusparseCreate(&handle_), "cusparseCreate");
    const cusparseStatus_t status =
        cusparseSetStream(handle_, static_cast<cudaStream_t>(queue.stream));
    if (status != CUSPARSE_STATUS_SUCCESS) cusparseDestroy(handle_);
    check(status, "cusparseSetStream");
  }
  ~SparseState() {
    plans_.clear();
    cusparseDestroy(handle_);
  }
  SparseState(const SparseState&) = delete;
  SparseState& operator=(const SparseState&) = delete;

  void run(StreamRef stream, const Key& key, const Call& call) {
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) plan = std::make_unique<Plan>(handle_, key, call);
    plan->run(handle_, stream, call);
  }

 private:
  cusparseHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

SparseState& sparse_of(CudaQueue& queue) {
  if (queue.sparse == nullptr) {
    queue.sparse = std::make_unique<SparseState>(queue).release();
    queue.release_sparse = [](void* sparse) { delete static_cast<SparseState*>(sparse); };
  }
  return *static_cast<SparseState*>(queue.sparse);
}

}  // namespace

void csr_spmm(StreamRef stream, const View& y, const View& x, const View& offsets,
              const View& columns, const View& values) {
  if (y.numel() == 0) return;
  if (values.numel() == 0 || x.numel() == 0) return fill(stream, y, 0);  // an empty sum
  const Key key{y.rows(), x.cols(), y.cols(), values.numel(), x.dtype};
  sparse_of(*static_cast<CudaQueue*>(stream.native))
      .run(stream, key, {y, x, offsets, columns, values});
}

}  // namespace fovea::cuda
