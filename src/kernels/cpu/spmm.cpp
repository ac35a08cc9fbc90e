#include "kernels/spmm.h"

#include <cstdint>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

struct Csr {
  const std::int32_t* offsets;
  const std::int32_t* columns;
  std::int64_t rows;
};

// One row of x, already converted. Every output is one ascending chain.
template <class T, class C>
void multiply_row(T* y, const C* x, const Csr& a, const C* values) {
  for (std::int64_t j = 0; j < a.rows; ++j) {
    C sum = 0;
    for (std::int64_t e = a.offsets[j]; e < a.offsets[j + 1]; ++e)
      sum += values[e] * x[a.columns[e]];
    store_one(y + j, sum);
  }
}

}  // namespace

void csr_spmm(StreamRef stream, const View& y, const View& x, const View& offsets,
              const View& columns, const View& values) {
  const Csr a{offsets.ptr<std::int32_t>(), columns.ptr<std::int32_t>(), y.cols()};
  const std::int64_t in = x.cols(), entries = values.numel();
  for_float(x.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    Scratch<C> wide(entries);
    for (std::int64_t e = 0; e < entries; ++e)
      wide[e] = load_one(values.ptr<T>() + e);
    parallel_for(stream, y.rows(), grain_rows(in + entries),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch<C> row(in);
                   for (std::int64_t r = begin; r < end; ++r) {
                     for (std::int64_t k = 0; k < in; ++k)
                       row[k] = load_one(x.ptr<T>() + r * in + k);
                     multiply_row(y.ptr<T>() + r * a.rows, row.data(), a, wide.data());
                   }
                 });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
