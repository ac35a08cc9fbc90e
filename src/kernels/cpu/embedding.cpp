#include "kernels/embedding.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// The table row of output row r.
std::int64_t row_of(const View& ids, std::int64_t r, std::int64_t period) {
  return ids ? std::int64_t{ids.ptr<std::int32_t>()[r]} : r % period;
}

}  // namespace

void embedding_forward(StreamRef stream, const View& out, const View& ids, const View& table,
                       const View& positions_table, const View& positions, std::int64_t period) {
  const std::int64_t cols = out.cols();
  for_float(out.dtype, [&]<class T>(T*) {
    parallel_for(stream, out.rows(), grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const token = table.ptr<T>() + row_of(ids, r, period) * cols;
        const T* const place = positions_table
                                   ? positions_table.ptr<T>() + row_of(positions, r, period) * cols
                                   : nullptr;
        T* const to = out.ptr<T>() + r * cols;
        for_lanes<T>(cols, [&](std::int64_t i, auto count) {
          auto v = take(token + i, count);
          if (place != nullptr) v += take(place + i, count);
          put(to + i, v, count);
        });
      }
    });
  });
}

void embedding_backward(StreamRef stream, const View& dtable, const View& ids, const View& dy,
                        std::int64_t period) {
  // Every thread owns columns, so that each element is summed by one thread, in row order.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t rows = dy.rows(), cols = dy.cols();
  for_float(dy.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, cols, kColumns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const T* const from = dy.ptr<T>() + r * cols + begin;
        A* const to = dtable.ptr<A>() + row_of(ids, r, period) * cols + begin;
        for_lanes<T>(end - begin, [&](std::int64_t i, auto count) {
          put(to + i, take(to + i, count) + take(from + i, count), count);
        });
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
