#include "kernels/low_rank.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Row [b,h,n] of a view [B,H,N,D].
template <class T>
T* row_at(const View& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + n * x.stride[2];
}

bool is_valid(const View& valid, std::int64_t b, std::int64_t n) {
  return !valid || valid.ptr<std::uint8_t>()[b * valid.stride[0] + n * valid.stride[1]] != 0;
}

template <class A>
A size_of_weight(A value) {
  return value < 0 ? -value : value;
}

}  // namespace

void keep_valid(StreamRef stream, const View& to, const View& from, const View& valid) {
  const std::int64_t heads = to.dim[1], tokens = to.dim[2], width = to.dim[3];
  for_float(to.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, to.rows(), grain_rows(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row % tokens, h = row / tokens % heads, b = row / tokens / heads;
        T* const out = row_at<T>(to, b, h, n);
        const T* const in = row_at<T>(from, b, h, n);
        const bool kept = is_valid(valid, b, n);
        for (std::int64_t c = 0; c < width; ++c)
          store_one(out + c, kept ? load_one(in + c) : A{0});
      }
    });
  });
}

void any_valid(StreamRef stream, const View& any, const View& valid, std::int64_t block,
               std::int64_t slots) {
  const std::int64_t blocks = any.dim[1] / slots;
  parallel_for(stream, any.dim[0] * blocks, grain_rows(block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t at = begin; at < end; ++at) {
                   const std::int64_t b = at / blocks, first = at % blocks * block;
                   std::uint8_t found = 0;
                   for (std::int64_t n = first; n < first + block; ++n)
                     found = is_valid(valid, b, n) ? 1 : found;
                   for (std::int64_t s = 0; s < slots; ++s)
                     any.ptr<std::uint8_t>()[at * slots + s] = found;
                 }
               });
}

void slot_mass_forward(StreamRef stream, const View& mass, const View& total, const View& e,
                       const View& valid, std::int64_t tokens) {
  const std::int64_t slots = e.rows(), all = e.cols();
  for_float(e.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, slots, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot) {
        const T* const weights = e.ptr<T>() + slot * all;
        const auto sum = [&](std::int64_t n, const View& real, std::int64_t b) {
          A out = 0;
          for (std::int64_t j = 0; j < n; ++j) {
            if (is_valid(real, b, j)) out += size_of_weight<A>(load_one(weights + j));
          }
          return out;
        };
        total.ptr<A>()[slot] = sum(all, View{}, 0);
        for (std::int64_t b = 0; b < mass.dim[0]; ++b)
          mass.ptr<A>()[b * slots + slot] = sum(tokens, valid, b);
      }
    });
  });
}

void slot_mass_backward(StreamRef stream, const View& de, const View& share, const View& mass,
                        const View& total, const View& e, const View& valid, std::int64_t tokens) {
  const std::int64_t slots = e.rows(), all = e.cols();
  for_float(e.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, slots, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot) {
        for (std::int64_t j = 0; j < all; ++j) {
          A sum = 0;
          for (std::int64_t b = 0; b < mass.dim[0]; ++b) {
            const A m = mass.ptr<A>()[b * slots + slot];
            if (m == 0) continue;
            const A part = j < tokens && is_valid(valid, b, j) ? 1 / m : A{0};
            sum += share.ptr<A>()[b * slots + slot] * (1 / total.ptr<A>()[slot] - part);
          }
          const A weight = load_one(e.ptr<T>() + slot * all + j);
          de.ptr<A>()[slot * all + j] += weight > 0 ? sum : weight < 0 ? -sum : A{0};
        }
      }
    });
  });
}

namespace {

// fn(b, h, r, the factor of the slot) for every row of x [B,H,R,D].
template <class A, class F>
void for_slots(StreamRef stream, const View& x, const View& mass, const View& total, F&& fn) {
  const std::int64_t heads = x.dim[1], slots = x.dim[2], groups = total.dim[0];
  parallel_for(stream, x.rows(), grain_rows(x.dim[3]), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t r = row % slots, h = row / slots % heads, b = row / slots / heads;
      const std::int64_t g = h * groups / heads;
      const A m = mass.ptr<A>()[(b * groups + g) * slots + r];
      fn(b, h, r, m == 0 ? A{0} : total.ptr<A>()[g * slots + r] / m);
    }
  });
}

template <class T>
void scale_slots(StreamRef stream, const View& y, const View& x, const View& mass,
                 const View& total) {
  using A = Compute<T>;
  for_slots<A>(stream, x, mass, total,
               [&](std::int64_t b, std::int64_t h, std::int64_t r, A factor) {
                 T* const out = row_at<T>(y, b, h, r);
                 const T* const in = row_at<T>(x, b, h, r);
                 for (std::int64_t c = 0; c < x.dim[3]; ++c)
                   store_one(out + c * y.stride[3], factor * load_one(in + c * x.stride[3]));
               });
}

}  // namespace

void slot_scale_forward(StreamRef stream, const View& y, const View& x, const View& mass,
                        const View& total) {
  for_float(x.dtype, [&]<class T>(T*) { scale_slots<T>(stream, y, x, mass, total); });
}

void slot_scale_backward(StreamRef stream, const View& dx, const View& share, const View& dy,
                         const View& y, const View& mass, const View& total) {
  const std::int64_t heads = y.dim[1], slots = y.dim[2], groups = total.dim[0];
  for_float(y.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    if (dx) scale_slots<T>(stream, dx, dy, mass, total);
    if (!share) return;
    parallel_for(stream, y.dim[0] * groups * slots, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t r = at % slots, g = at / slots % groups, b = at / slots / groups;
        A sum = 0;
        for (std::int64_t h = g * heads / groups; h < (g + 1) * heads / groups; ++h) {
          const T* const left = row_at<T>(dy, b, h, r);
          const T* const right = row_at<T>(y, b, h, r);
          for (std::int64_t c = 0; c < y.dim[3]; ++c)
            sum += load_one(left + c * dy.stride[3]) * load_one(right + c * y.stride[3]);
        }
        share.ptr<A>()[at] = sum;
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
