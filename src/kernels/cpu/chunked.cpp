#include "kernels/chunked.h"

#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

void keep_lower(StreamRef stream, const View& x) {
  const std::int64_t rows = x.dim[x.rank - 2], cols = x.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, x.rows(), grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* const at = x.ptr<T>() + row * cols;
        for (std::int64_t c = row % rows + 1; c < cols; ++c)
          store_one(at + c, Compute<T>{0});
      }
    });
  });
}

void scan_blocks(StreamRef stream, const View& out, const View& in, const View& first,
                 const View& last, bool reverse) {
  const std::int64_t blocks = in.dim[1], size = in.dim[2];
  for_float(out.dtype, [&]<class O>(O*) {
    for_float(in.dtype, [&]<class I>(I*) {
      using A = Compute<I>;
      parallel_for(stream, in.dim[0] * size, 1024, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t start = at / size * blocks * size + at % size;
          A sum = 0;
          if (first)
            for_float(first.dtype,
                      [&]<class F>(F*) { sum = static_cast<A>(load_one(first.ptr<F>() + at)); });
          for (std::int64_t t = 0; t < blocks; ++t) {
            const std::int64_t e = start + (reverse ? blocks - 1 - t : t) * size;
            const A own = load_one(in.ptr<I>() + e);
            store_one(out.ptr<O>() + e, static_cast<Compute<O>>(sum));
            sum += own;
          }
          if (last)
            for_float(last.dtype, [&]<class L>(L*) {
              store_one(last.ptr<L>() + at, static_cast<Compute<L>>(sum));
            });
        }
      });
    });
  });
}

namespace {

// fn(row, whether it is valid) for every row [b,h,n] of x [B,H,N,R].
template <class F>
void for_rows(StreamRef stream, const View& x, const View& valid, F&& fn) {
  const std::int64_t heads = x.dim[1], tokens = x.dim[2];
  parallel_for(stream, x.rows(), grain_rows(x.cols()), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t b = row / tokens / heads, n = row % tokens;
      fn(row, !valid || valid.ptr<std::uint8_t>()[b * valid.stride[0] + n * valid.stride[1]] != 0);
    }
  });
}

}  // namespace

void slot_softmax_forward(StreamRef stream, const View& p, const View& lse, const View& s,
                          const View& valid) {
  const std::int64_t slots = p.cols();
  for_float(p.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    for_rows(stream, p, valid, [&](std::int64_t row, bool real) {
      const A* const in = s.ptr<A>() + row * slots;
      T* const out = p.ptr<T>() + row * slots;
      A most = -std::numeric_limits<A>::infinity(), sum = 0;
      for (std::int64_t r = 0; real && r < slots; ++r)
        most = in[r] > most ? in[r] : most;
      for (std::int64_t r = 0; real && r < slots; ++r)
        sum += std::exp(in[r] - most);
      lse.ptr<A>()[row] = real ? most + std::log(sum) : -std::numeric_limits<A>::infinity();
      for (std::int64_t r = 0; r < slots; ++r)
        store_one(out + r, real ? std::exp(in[r] - most) / sum : A{0});
    });
  });
}

void slot_softmax_backward(StreamRef stream, const View& ds, const View& dp, const View& dlse,
                           const View& p, const View& valid) {
  const std::int64_t slots = p.cols();
  for_float(p.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    for_rows(stream, p, valid, [&](std::int64_t row, bool real) {
      const T* const weights = p.ptr<T>() + row * slots;
      const T* const d = dp.ptr<T>() + (dp ? row * slots : 0);
      T* const out = ds.ptr<T>() + row * slots;
      A shift = dlse ? dlse.ptr<A>()[row] : A{0};
      for (std::int64_t r = 0; dp && real && r < slots; ++r)
        shift -= load_one(weights + r) * load_one(d + r);
      for (std::int64_t r = 0; r < slots; ++r) {
        const A own = dp && real ? load_one(d + r) : A{0};
        store_one(out + r, real ? load_one(weights + r) * (own + shift) : A{0});
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
