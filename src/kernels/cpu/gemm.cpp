#include "kernels/gemm.h"

#include <cstring>
#include <type_traits>

#include <cblas.h>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Rows of c to a call of the BLAS. How it sums depends on a row's place among the rows of a call
// and on their number (measured, OpenBLAS 0.3.21: Haswell kernels treat rows in groups of 12,
// SkylakeX kernels small products in another way), so calls always have this many and the last is
// padded.
constexpr std::int64_t kBlockRows = 128;

struct Matrix {
  char* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::f32;
  bool is(DType which) const { return dtype == which; }
  float* floats() const { return reinterpret_cast<float*>(data); }
};

std::int64_t batches(const View& view) {
  std::int64_t n = 1;
  for (int axis = 0; axis < view.rank - 2; ++axis)
    n *= view.dim[axis];
  return n;
}

Matrix matrix(const View& view, std::int64_t batch) {
  std::int64_t offset = 0;
  for (int axis = view.rank - 3; axis >= 0; --axis) {
    offset += batch % view.dim[axis] * view.stride[axis];
    batch /= view.dim[axis];
  }
  Matrix out{view.ptr<char>() + offset * size_of(view.dtype), view.dim[view.rank - 2],
             view.dim[view.rank - 1], view.stride[view.rank - 2], view.dtype};
  if (out.stride < out.cols) out.stride = out.cols;  // a single row may have any stride
  return out;
}

// n elements, converted. To and From: double, float or a 16-bit type.
template <class To, class From>
void convert_row(To* to, const From* from, std::int64_t n) {
  std::int64_t i = 0;
  if constexpr (!std::is_same_v<To, double> && !std::is_same_v<From, double>) {
    for (; i + kLanes <= n; i += kLanes)
      store(to + i, load(from + i));
  }
  for (; i < n; ++i)
    store_one(to + i, static_cast<Compute<To>>(load_one(from + i)));
}

// Rows [begin, end), columns [left, right) of `from`.
template <class T>
void read(T* to, std::int64_t to_stride, const Matrix& from, std::int64_t begin, std::int64_t end,
          std::int64_t left, std::int64_t right) {
  for_float(from.dtype, [&]<class F>(F*) {
    const F* at = reinterpret_cast<const F*>(from.data) + left;
    for (std::int64_t row = begin; row < end; ++row) {
      convert_row(to + (row - begin) * to_stride, at + row * from.stride, right - left);
    }
  });
}

template <class T>
void write(const Matrix& to, const T* from, std::int64_t begin, std::int64_t end) {
  for_float(to.dtype, [&]<class F>(F*) {
    F* at = reinterpret_cast<F*>(to.data);
    for (std::int64_t row = begin; row < end; ++row) {
      convert_row(at + row * to.stride, from + (row - begin) * to.cols, to.cols);
    }
  });
}

struct Product {
  View c, a, b, bias;
  bool transpose_a, transpose_b;
  double beta;
  std::int64_t m() const { return c.dim[c.rank - 2]; }
  std::int64_t n() const { return c.dim[c.rank - 1]; }
  std::int64_t k() const { return a.dim[transpose_a ? a.rank - 2 : a.rank - 1]; }
};

void sgemm(const Product& p, std::int64_t rows, const float* a, std::int64_t a_stride,
           const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride) {
  // The BLAS has threads of its own; ours call it, so that bits do not depend on their number.
  static const bool once = (openblas_set_num_threads(1), true);
  (void)once;
  const auto size = [](std::int64_t n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
              p.transpose_b ? CblasTrans : CblasNoTrans, size(rows), size(p.n()), size(p.k()), 1.0f,
              a, size(a_stride), b, size(b_stride), beta, c, size(c_stride));
}

// Rows [begin, end) of one matrix of the batch.
void multiply_block(const Product& p, const Matrix& c, const Matrix& a, const Matrix& b,
                    std::int64_t begin, std::int64_t end) {
  const std::int64_t rows = end - begin, n = p.n(), k = p.k();
  const std::int64_t padded = p.transpose_a ? rows : kBlockRows;
  const bool whole = rows == padded;

  const bool a_in_place = whole && a.is(DType::f32);
  Scratch<float> a_copy(a_in_place ? 0 : padded * k);
  const float* a_block = a_copy.data();
  std::int64_t a_stride = p.transpose_a ? padded : k;
  if (a_in_place) {
    a_block = a.floats() + (p.transpose_a ? begin : begin * a.stride);
    a_stride = a.stride;
  } else if (p.transpose_a) {
    read(a_copy.data(), padded, a, 0, k, begin, end);
  } else {
    read(a_copy.data(), k, a, begin, end, 0, k);
    std::memset(a_copy.data() + rows * k, 0,
                static_cast<std::size_t>((padded - rows) * k) * sizeof(float));
  }

  const bool c_in_place = whole && c.is(DType::f32);
  Scratch<float> c_copy(c_in_place ? 0 : padded * n);
  float* c_block = c_in_place ? c.floats() + begin * c.stride : c_copy.data();
  const std::int64_t c_stride = c_in_place ? c.stride : n;
  if (!c_in_place && (p.beta != 0 || p.bias)) {
    std::memset(c_block, 0, static_cast<std::size_t>(padded * n) * sizeof(float));
  }
  if (p.bias) {
    const Matrix bias{p.bias.ptr<char>(), 1, n, n, p.bias.dtype};
    for (std::int64_t row = 0; row < rows; ++row)
      read(c_block + row * c_stride, n, bias, 0, 1, 0, n);
  } else if (!c_in_place && p.beta != 0) {
    read(c_block, n, c, begin, end, 0, n);
  }
  sgemm(p, padded, a_block, a_stride, b.floats(), b.stride,
        p.bias ? 1.0f : static_cast<float>(p.beta), c_block, c_stride);
  if (!c_in_place) write(c, c_block, begin, end);
}

void multiply_f32(StreamRef stream, const Product& p) {
  // 16-bit b: all of it is converted first, once.
  const std::int64_t b_rows = p.b.dim[p.b.rank - 2], b_cols = p.b.dim[p.b.rank - 1];
  const bool convert = p.b.dtype != DType::f32;
  const std::int64_t count = batches(p.c);
  Scratch<float> b_copy(convert ? count * b_rows * b_cols : 0);
  if (convert) {
    parallel_for(stream, count * b_rows, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t r = row % b_rows;
        read(b_copy.data() + row * b_cols, b_cols, matrix(p.b, row / b_rows), r, r + 1, 0, b_cols);
      }
    });
  }
  const std::int64_t blocks = (p.m() + kBlockRows - 1) / kBlockRows;
  parallel_for(stream, count * blocks, 1, [&](std::int64_t chunk, std::int64_t /*next*/) {
    const std::int64_t batch = chunk / blocks, begin = chunk % blocks * kBlockRows;
    Matrix b = matrix(p.b, batch);
    if (convert)
      b = {reinterpret_cast<char*>(b_copy.data() + batch * b_rows * b_cols), b_rows, b_cols,
           b_cols};
    const std::int64_t end = begin + kBlockRows < p.m() ? begin + kBlockRows : p.m();
    multiply_block(p, matrix(p.c, batch), matrix(p.a, batch), b, begin, end);
  });
}

// The oracle: each element is summed over k ascending.
void multiply_f64(StreamRef stream, const Product& p) {
  const std::int64_t m = p.m(), n = p.n(), k = p.k();
  for (std::int64_t batch = 0; batch < batches(p.c); ++batch) {
    const Matrix c = matrix(p.c, batch), a = matrix(p.a, batch), b = matrix(p.b, batch);
    Scratch<double> b_rows(k * n), b_columns(p.transpose_b ? k * n : 0);  // [k,n]
    read(p.transpose_b ? b_columns.data() : b_rows.data(), b.cols, b, 0, b.rows, 0, b.cols);
    for (std::int64_t i = 0; p.transpose_b && i < k; ++i) {
      for (std::int64_t j = 0; j < n; ++j)
        b_rows.data()[i * n + j] = b_columns.data()[j * k + i];
    }
    parallel_for(stream, m, 8, [&](std::int64_t begin, std::int64_t end) {
      Scratch<double> row(n);
      for (std::int64_t i = begin; i < end; ++i) {
        double* out = row.data();
        for (std::int64_t j = 0; j < n; ++j)
          out[j] = 0;
        if (p.beta != 0) read(out, n, c, i, i + 1, 0, n);
        for (std::int64_t j = 0; p.beta != 0 && j < n; ++j)
          out[j] *= p.beta;
        if (p.bias) read(out, n, {p.bias.ptr<char>(), 1, n, n, p.bias.dtype}, 0, 1, 0, n);
        for (std::int64_t l = 0; l < k; ++l) {
          double factor;
          if (p.transpose_a)
            read(&factor, 1, a, l, l + 1, i, i + 1);
          else
            read(&factor, 1, a, i, i + 1, l, l + 1);
          const double* b_row = b_rows.data() + l * n;
          for (std::int64_t j = 0; j < n; ++j)
            out[j] += factor * b_row[j];
        }
        write(c, out, i, i + 1);
      }
    });
  }
}

void multiply(StreamRef stream, const Product& p) {
  if (p.c.numel() == 0) return;
  const bool wide = p.c.dtype == DType::f64 || p.a.dtype == DType::f64 || p.k() == 0;
  wide ? multiply_f64(stream, p) : multiply_f32(stream, p);
}

}  // namespace

void gemm(StreamRef stream, const View& c, const View& a, const View& b, bool transpose_a,
          bool transpose_b, double beta) {
  multiply(stream, {c, a, b, {}, transpose_a, transpose_b, beta});
}

void gemm_bias(StreamRef stream, const View& c, const View& a, const View& b, const View& bias,
               bool transpose_a, bool transpose_b) {
  multiply(stream, {c, a, b, bias, transpose_a, transpose_b, 0});
}

}  // namespace fovea::cpu::FOVEA_ISA
