#include "kernels/head_scale.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

template <class T>
T* row_of(const View& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + n * x.stride[2];
}

}  // namespace

void head_scale_forward(StreamRef stream, const View& y, const View& x, const View& factor) {
  const std::int64_t heads = x.dim[1], tokens = x.dim[2], width = x.dim[3];
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, x.dim[0] * tokens * heads, grain_rows(width),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const std::int64_t h = row % heads, n = row / heads % tokens,
                                        b = row / heads / tokens;
                     const T* const from = row_of<T>(x, b, h, n);
                     T* const to = row_of<T>(y, b, h, n);
                     const auto by = every<T>(static_cast<double>(factor.ptr<A>()[h]));
                     for_lanes<T>(width, [&](std::int64_t i, auto count) {
                       put(to + i, take(from + i, count) * by, count);
                     });
                   }
                 });
  });
}

void head_product_sum(StreamRef stream, const View& total, const View& a, const View& b) {
  const std::int64_t heads = a.dim[1], tokens = a.dim[2], width = a.dim[3];
  for_float(a.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, heads, 1, [&](std::int64_t h, std::int64_t) {
      A all = 0;
      for (std::int64_t sample = 0; sample < a.dim[0]; ++sample) {
        for (std::int64_t n = 0; n < tokens; ++n) {
          const T* const left = row_of<T>(a, sample, h, n);
          const T* const right = row_of<T>(b, sample, h, n);
          auto along = every<T>(0);
          for_lanes<T>(width, [&](std::int64_t i, auto count) {
            along = along + take(left + i, count) * take(right + i, count);
          });
          all += sum(along);
        }
      }
      total.ptr<A>()[h] += all;
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
