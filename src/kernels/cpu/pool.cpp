#include "kernels/pool.h"

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// The rows of one sequence that count, [begin, end) as far as they are real, and how many.
struct Rows {
  const std::uint8_t* valid;  // null: all are real
  std::int64_t begin = 0, end = 0, count = 0;
  bool has(std::int64_t n) const { return n >= begin && n < end && real(n); }
  bool real(std::int64_t n) const { return valid == nullptr || valid[n] != 0; }
};

Rows rows_of(const View& key_valid, std::int64_t b, std::int64_t length, Pool rule) {
  if (rule == Pool::first) return {nullptr, 0, 1, 1};
  Rows out{key_valid ? key_valid.ptr<std::uint8_t>() + b * length : nullptr, 0, length, 0};
  for (std::int64_t n = 0; n < length; ++n) {
    if (!out.real(n)) continue;
    ++out.count;
    if (rule == Pool::last) out.begin = n;
  }
  if (rule == Pool::last && out.count > 0) out.count = 1;
  return out;
}

}  // namespace

void pool_forward(StreamRef stream, const View& out, const View& x, const View& key_valid,
                  Pool rule) {
  // Every task owns columns of one sequence, so that each element is summed in the order of rows.
  constexpr std::int64_t kColumns = 128;
  const std::int64_t length = x.dim[1], cols = x.dim[2], pieces = (cols + kColumns - 1) / kColumns;
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, x.dim[0] * pieces, 1, [&](std::int64_t task, std::int64_t) {
      const std::int64_t b = task / pieces, first = task % pieces * kColumns;
      const std::int64_t width = cols - first < kColumns ? cols - first : kColumns;
      const Rows rows = rows_of(key_valid, b, length, rule);
      A sum[kColumns] = {};
      for (std::int64_t n = rows.begin; n < rows.end; ++n) {
        if (!rows.has(n)) continue;
        const T* const from = x.ptr<T>() + (b * length + n) * cols + first;
        for_lanes<T>(width, [&](std::int64_t i, auto count) {
          put(sum + i, take(sum + i, count) + take(from + i, count), count);
        });
      }
      const auto share = every<T>(rows.count > 0 ? 1 / static_cast<double>(rows.count) : 0);
      T* const to = out.ptr<T>() + b * cols + first;
      for_lanes<T>(width, [&](std::int64_t i, auto count) {
        put(to + i, take(sum + i, count) * share, count);
      });
    });
  });
}

void pool_backward(StreamRef stream, const View& dx, const View& dout, const View& key_valid,
                   Pool rule) {
  const std::int64_t length = dx.dim[1], cols = dx.dim[2];
  for_float(dx.dtype, [&]<class T>(T*) {
    parallel_for(stream, dx.dim[0], 1, [&](std::int64_t b, std::int64_t) {
      const Rows rows = rows_of(key_valid, b, length, rule);
      const auto share = every<T>(rows.count > 0 ? 1 / static_cast<double>(rows.count) : 0);
      const T* const from = dout.ptr<T>() + b * cols;
      for (std::int64_t n = 0; n < length; ++n) {
        T* const to = dx.ptr<T>() + (b * length + n) * cols;
        const auto weight = rows.has(n) ? share : every<T>(0);
        for_lanes<T>(cols, [&](std::int64_t i, auto count) {
          put(to + i, take(from + i, count) * weight, count);
        });
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
