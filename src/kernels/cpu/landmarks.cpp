#include "kernels/landmarks.h"

#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

bool is_valid(const View& valid, std::int64_t b, std::int64_t n) {
  return !valid || valid.ptr<std::uint8_t>()[b * valid.stride[0] + n * valid.stride[1]] != 0;
}

template <class T>
T* row_at(const View& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + n * x.stride[2];
}

// fn(b, h, n) for every row of a view [B,H,N,D].
template <class F>
void for_rows(StreamRef stream, const View& x, std::int64_t work, F&& fn) {
  const std::int64_t heads = x.dim[1], tokens = x.dim[2];
  parallel_for(stream, x.rows(), grain_rows(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      fn(row / tokens / heads, row / tokens % heads, row % tokens);
  });
}

}  // namespace

void landmark_cut(StreamRef stream, const View& begin, const View& size, const View& present,
                  const View& single, const View& valid, std::int64_t tokens) {
  const std::int64_t m = size.dim[1];
  parallel_for(stream, size.dim[0], 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t b = from; b < to; ++b) {
      std::int64_t n = 0;
      for (std::int64_t j = 0; j < tokens; ++j)
        n += is_valid(valid, b, j) ? 1 : 0;
      const std::int64_t short_ones = n <= m ? n : m - n % m, each = n <= m ? 1 : n / m;
      single.ptr<std::uint8_t>()[b] = n <= m ? 1 : 0;
      std::int32_t* const starts = begin.ptr<std::int32_t>() + b * (m + 1);
      std::int64_t at = 0;
      for (std::int64_t s = 0; s < m; ++s) {
        starts[s] = static_cast<std::int32_t>(at);
        const std::int64_t count = s < short_ones ? each : n <= m ? 0 : each + 1;
        size.ptr<std::int32_t>()[b * m + s] = static_cast<std::int32_t>(count);
        present.ptr<std::uint8_t>()[b * m + s] = count > 0 ? 1 : 0;
        for (std::int64_t left = count; left > 0; ++at)
          left -= is_valid(valid, b, at) ? 1 : 0;
      }
      starts[m] = static_cast<std::int32_t>(tokens);
    }
  });
}

void segment_mean_forward(StreamRef stream, const View& out, const View& x, const View& begin,
                          const View& size, const View& valid) {
  const std::int64_t m = out.dim[2], width = out.dim[3];
  for_float(out.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    for_rows(stream, out, width, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
      const std::int32_t* const starts = begin.ptr<std::int32_t>() + b * (m + 1) + s;
      const std::int32_t count = size.ptr<std::int32_t>()[b * m + s];
      const std::int64_t head = h * x.dim[1] / out.dim[1];
      Scratch<A> sums(width);
      std::memset(sums.data(), 0, static_cast<std::size_t>(width) * sizeof(A));
      for (std::int64_t j = starts[0]; j < starts[1]; ++j) {
        if (!is_valid(valid, b, j)) continue;
        const T* const row = row_at<T>(x, b, head, j);
        for (std::int64_t c = 0; c < width; ++c)
          sums[c] += load_one(row + c * x.stride[3]);
      }
      T* const to = row_at<T>(out, b, h, s);
      for (std::int64_t c = 0; c < width; ++c)
        store_one(to + c * out.stride[3], count > 0 ? sums[c] / static_cast<A>(count) : A{0});
    });
  });
}

void segment_mean_backward(StreamRef stream, const View& dx, const View& dout, const View& begin,
                           const View& size, const View& valid) {
  const std::int64_t m = dout.dim[2], width = dx.dim[3], heads = dx.dim[1],
                     group = dout.dim[1] / heads;
  for_float(dx.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, dx.dim[0] * heads * m, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t at = from; at < to; ++at) {
        const std::int64_t s = at % m, h = at / m % heads, b = at / m / heads;
        const std::int32_t* const starts = begin.ptr<std::int32_t>() + b * (m + 1) + s;
        const A count = static_cast<A>(size.ptr<std::int32_t>()[b * m + s]);
        for (std::int64_t j = starts[0]; j < starts[1]; ++j) {
          const bool real = is_valid(valid, b, j);
          T* const row = row_at<T>(dx, b, h, j);
          for (std::int64_t c = 0; c < width; ++c) {
            A sum = 0;
            for (std::int64_t g = 0; real && g < group; ++g)
              sum += load_one(row_at<T>(dout, b, h * group + g, s) + c * dout.stride[3]);
            store_one(row + c * dx.stride[3], real ? sum / count : A{0});
          }
        }
      }
    });
  });
}

void choose_samples(StreamRef stream, const View& out, const View& flags, const View& yes,
                    const View& no) {
  if (out.numel() == 0) return;
  const std::int64_t bytes = out.numel() / out.dim[0] * size_of(out.dtype);
  parallel_for(stream, out.dim[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const View& from = flags.ptr<std::uint8_t>()[b] != 0 ? yes : no;
      char* const to = out.ptr<char>() + b * bytes;
      if (from)
        std::memcpy(to, from.ptr<char>() + b * bytes, static_cast<std::size_t>(bytes));
      else
        std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
  });
}

void pinv_start(StreamRef stream, const View& z, const View& norm, const View& a) {
  const std::int64_t m = a.cols();
  for_float(a.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, norm.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        const T* const from = a.ptr<T>() + p * m * m;
        const auto largest = [&](std::int64_t outer, std::int64_t inner) {
          A most = 0;
          for (std::int64_t i = 0; i < m; ++i) {
            A sum = 0;
            for (std::int64_t j = 0; j < m; ++j) {
              const A value = load_one(from + i * outer + j * inner);
              sum += value < 0 ? -value : value;
            }
            most = sum > most ? sum : most;
          }
          return most;
        };
        const A total = largest(1, m) * largest(m, 1);
        store_one(norm.ptr<T>() + p, total);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < m; ++j)
            store_one(z.ptr<T>() + (p * m + i) * m + j, load_one(from + j * m + i) / total);
        }
      }
    });
  });
}

void pinv_start_backward(StreamRef stream, const View& da, const View& dz, const View& norm) {
  const std::int64_t m = da.cols();
  for_float(da.dtype, [&]<class T>(T*) {
    parallel_for(
        stream, norm.numel() * m, grain_rows(m), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t p = row / m, i = row % m;
            T* const to = da.ptr<T>() + row * m;
            for (std::int64_t j = 0; j < m; ++j)
              store_one(to + j, load_one(to + j) + load_one(dz.ptr<T>() + (p * m + j) * m + i) /
                                                       load_one(norm.ptr<T>() + p));
          }
        });
  });
}

void identity_minus(StreamRef stream, const View& out, const View& x, double alpha) {
  const std::int64_t m = x.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    parallel_for(stream, x.rows(), grain_rows(m), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t j = 0; j < m; ++j) {
          const A own = j == row % m ? static_cast<A>(alpha) : A{0};
          store_one(out.ptr<T>() + row * m + j, own - load_one(x.ptr<T>() + row * m + j));
        }
      }
    });
  });
}

namespace {

// The taps whose token i + t - half is there: [first, last).
struct Taps {
  std::int64_t first, last;
  Taps(std::int64_t i, std::int64_t half, std::int64_t taps, std::int64_t tokens)
      : first(i < half ? half - i : 0), last(i - half + taps > tokens ? tokens + half - i : taps) {}
};

}  // namespace

void token_conv_forward(StreamRef stream, const View& out, const View& o, const View& v,
                        const View& w, const View& valid) {
  const std::int64_t width = out.dim[3], taps = w.dim[1], half = taps / 2, tokens = out.dim[2];
  for_float(out.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    for_rows(stream, out, width * taps, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      T* const to = row_at<T>(out, b, h, i);
      const T* const base = row_at<T>(o, b, h, i);
      Scratch<A> sums(width);
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] = load_one(base + c * o.stride[3]);
      const Taps near(i, half, taps, tokens);
      for (std::int64_t t = near.first; is_valid(valid, b, i) && t < near.last; ++t) {
        const std::int64_t j = i + t - half;
        if (!is_valid(valid, b, j)) continue;
        const A weight = load_one(w.ptr<T>() + h * taps + t);
        const T* const row = row_at<T>(v, b, h * v.dim[1] / out.dim[1], j);
        for (std::int64_t c = 0; c < width; ++c)
          sums[c] += weight * load_one(row + c * v.stride[3]);
      }
      for (std::int64_t c = 0; c < width; ++c)
        store_one(to + c * out.stride[3], sums[c]);
    });
  });
}

void token_conv_backward(StreamRef stream, const View& dv, const View& dw, const View& dout,
                         const View& v, const View& w, const View& valid) {
  const std::int64_t width = dout.dim[3], taps = w.dim[1], half = taps / 2, tokens = dout.dim[2],
                     heads = dout.dim[1], kv_heads = v.dim[1], group = heads / kv_heads;
  for_float(v.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    if (dv) {
      for_rows(stream, dv, width * taps, [&](std::int64_t b, std::int64_t hk, std::int64_t j) {
        T* const to = row_at<T>(dv, b, hk, j);
        Scratch<A> sums(width);
        std::memset(sums.data(), 0, static_cast<std::size_t>(width) * sizeof(A));
        for (std::int64_t g = 0; is_valid(valid, b, j) && g < group; ++g) {
          const std::int64_t h = hk * group + g;
          for (std::int64_t t = 0; t < taps; ++t) {
            const std::int64_t i = j - t + half;
            if (i < 0 || i >= tokens || !is_valid(valid, b, i)) continue;
            const A weight = load_one(w.ptr<T>() + h * taps + t);
            const T* const row = row_at<T>(dout, b, h, i);
            for (std::int64_t c = 0; c < width; ++c)
              sums[c] += weight * load_one(row + c * dout.stride[3]);
          }
        }
        for (std::int64_t c = 0; c < width; ++c)
          store_one(to + c * dv.stride[3], sums[c]);
      });
    }
    if (!dw) return;
    parallel_for(stream, heads * taps, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t h = at / taps, t = at % taps;
        A sum = 0;
        for (std::int64_t b = 0; b < dout.dim[0]; ++b) {
          for (std::int64_t i = 0; i < tokens; ++i) {
            const std::int64_t j = i + t - half;
            if (j < 0 || j >= tokens || !is_valid(valid, b, i) || !is_valid(valid, b, j)) continue;
            const T* const left = row_at<T>(dout, b, h, i);
            const T* const right = row_at<T>(v, b, h / group, j);
            for (std::int64_t c = 0; c < width; ++c)
              sum += load_one(left + c * dout.stride[3]) * load_one(right + c * v.stride[3]);
          }
        }
        dw.ptr<A>()[at] += sum;
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
