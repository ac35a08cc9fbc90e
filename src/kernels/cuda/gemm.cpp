// Products through cuBLASLt, accumulated in f32. Plain products and the bias epilogue only: the
// fused epilogues cost more than a pass of our own (calibration.md 2).

#include "kernels/gemm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "core/cuda_queue.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/cuda/gemm_plan.h"

namespace fovea::cuda {

namespace {

std::int64_t rows_of(const View& x) {
  return x.dim[x.rank - 2];
}

std::int64_t cols_of(const View& x) {
  return x.dim[x.rank - 1];
}

// One row alone may have any stride, so its own length stands in.
std::int64_t row_stride(const View& x) {
  return rows_of(x) == 1 ? std::max<std::int64_t>(cols_of(x), 1) : x.stride[x.rank - 2];
}

// The largest power of two up to 256 bytes that divides every row's address.
std::uint32_t alignment(const View& x, std::int64_t batch_stride) {
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * size_of(x.dtype));
  };
  const std::uint64_t all =
      reinterpret_cast<std::uintptr_t>(x.data) | bytes(row_stride(x)) | bytes(batch_stride) | 256u;
  return static_cast<std::uint32_t>(all & (~all + 1));
}

// The axes before the matrix: `count` matrices a step apart, repeated over `outer` axes.
struct Batches {
  std::int64_t count = 1;
  std::array<std::int64_t, 3> step{};  // of c, a, b
  int outer = 0;
};

Batches batches_of(const View& c, const View& a, const View& b) {
  const std::array views{&c, &a, &b};
  Batches out;
  for (int axis = c.rank - 3; axis >= 0; --axis) {
    if (c.dim[axis] == 1) continue;
    bool merges = true;
    for (std::size_t i = 0; i < views.size(); ++i)
      merges = merges && views[i]->stride[axis] == out.step[i] * out.count;
    if (out.count > 1 && !merges) {
      out.outer = axis + 1;
      break;
    }
    if (out.count == 1) {
      for (std::size_t i = 0; i < views.size(); ++i)
        out.step[i] = views[i]->stride[axis];
    }
    out.count *= c.dim[axis];
  }
  return out;
}

void require_dtypes(const View& c, const View& a, const View& b) {
  const bool factors = a.dtype == b.dtype && is_float(a.dtype) && a.dtype != DType::f64;
  if (factors && (c.dtype == a.dtype || c.dtype == DType::f32)) return;
  throw DeviceError(cat("gemm on cuda: ", name_of(a.dtype), " times ", name_of(b.dtype), " to ",
                        name_of(c.dtype),
                        "; factors are both f32, bf16 or f16, the product as they or f32"));
}

void product(StreamRef stream, const View& c, const View& a, const View& b, const View& bias,
             bool transpose_a, bool transpose_b, double beta) {
  require_dtypes(c, a, b);
  FOVEA_ASSERT(beta == 0 || beta == 1);
  if (c.numel() == 0) return;
  if (cols_of(a) == 0 || rows_of(a) == 0) {  // an empty sum
    if (beta == 0) fill(stream, c, 0);
    return;
  }
  auto& queue = *static_cast<CudaQueue*>(stream.native);
  const Batches batches = batches_of(c, a, b);
  GemmKey key;
  key.m = cols_of(c);
  key.n = rows_of(c);
  key.k = transpose_a ? rows_of(a) : cols_of(a);
  key.lda = row_stride(b);
  key.ldb = row_stride(a);
  key.ldd = row_stride(c);
  key.batch = batches.count;
  key.stride_d = batches.step[0];
  key.stride_a = batches.step[2];
  key.stride_b = batches.step[1];
  key.factors = a.dtype;
  key.out = c.dtype;
  key.transpose_a = transpose_b;
  key.transpose_b = transpose_a;
  key.accumulates = beta != 0;
  key.has_bias = bias.data != nullptr;
  if (key.has_bias) key.bias = bias.dtype;
  key.tf32 = queue.tf32;

  std::int64_t repeats = 1;
  for (int axis = 0; axis < batches.outer; ++axis)
    repeats *= c.dim[axis];
  BlasState& blas = blas_state(stream);
  const auto address = [](const View& x, std::int64_t offset) {
    return x.ptr<char>() + offset * size_of(x.dtype);
  };
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    std::int64_t rest = repeat, of_c = 0, of_a = 0, of_b = 0;
    for (int axis = batches.outer - 1; axis >= 0; --axis) {
      const std::int64_t i = rest % c.dim[axis];
      rest /= c.dim[axis];
      of_c += i * c.stride[axis];
      of_a += i * a.stride[axis];
      of_b += i * b.stride[axis];
    }
    // Outer steps may be less aligned than the first matrix.
    GemmKey own = key;
    View c_at = c, a_at = a, b_at = b;
    c_at.data = address(c, of_c);
    a_at.data = address(a, of_a);
    b_at.data = address(b, of_b);
    own.align_d = alignment(c_at, batches.step[0]);
    own.align_b = alignment(a_at, batches.step[1]);
    own.align_a = alignment(b_at, batches.step[2]);
    blas.plan(own).run(blas.handle, b_at.data, a_at.data, c_at.data, bias.data, blas.workspace,
                       queue.stream);
  }
}

}  // namespace

BlasState& blas_state(StreamRef stream) {
  auto& queue = *static_cast<CudaQueue*>(stream.native);
  if (queue.blas == nullptr) {
    queue.blas = std::make_unique<BlasState>().release();
    queue.release_blas = [](void* blas) { delete static_cast<BlasState*>(blas); };
  }
  return *static_cast<BlasState*>(queue.blas);
}

void gemm(StreamRef stream, const View& c, const View& a, const View& b, bool transpose_a,
          bool transpose_b, double beta) {
  product(stream, c, a, b, View{}, transpose_a, transpose_b, beta);
}

void gemm_bias(StreamRef stream, const View& c, const View& a, const View& b, const View& bias,
               bool transpose_a, bool transpose_b) {
  product(stream, c, a, b, bias, transpose_a, transpose_b, 0);
}

}  // namespace fovea::cuda
