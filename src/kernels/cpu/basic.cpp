#include "kernels/basic.h"

#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/strided.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Calls fn(i, count) for all lanes of n elements, in parallel.
template <class T, class F>
void map_lanes(StreamRef stream, std::int64_t n, F&& fn) {
  parallel_for(stream, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_lanes<T>(end - begin, [&](std::int64_t i, auto count) { fn(begin + i, count); });
  });
}

template <class T>
void fill_with(StreamRef stream, const View& x, T value) {
  T* const to = x.ptr<T>();
  parallel_for(stream, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = value;
  });
}

// One element of any dtype, through f64.
double read(const View& x, std::int64_t at) {
  switch (x.dtype) {
    case DType::f64:
      return x.ptr<double>()[at];
    case DType::f32:
      return static_cast<double>(x.ptr<float>()[at]);
    case DType::bf16:
      return static_cast<double>(load_one(x.ptr<BFloat16>() + at));
    case DType::f16:
      return static_cast<double>(load_one(x.ptr<Half>() + at));
    case DType::i64:
      return static_cast<double>(x.ptr<std::int64_t>()[at]);
    case DType::i32:
      return x.ptr<std::int32_t>()[at];
    case DType::u8:
      return x.ptr<std::uint8_t>()[at];
  }
  return 0;
}

void write(const View& x, std::int64_t at, double value) {
  switch (x.dtype) {
    case DType::f64:
      return store_one(x.ptr<double>() + at, value);
    case DType::f32:
      return store_one(x.ptr<float>() + at, static_cast<float>(value));
    case DType::bf16:
      return store_one(x.ptr<BFloat16>() + at, static_cast<float>(value));
    case DType::f16:
      return store_one(x.ptr<Half>() + at, static_cast<float>(value));
    case DType::i64:
      x.ptr<std::int64_t>()[at] = static_cast<std::int64_t>(value);
      return;
    case DType::i32:
      x.ptr<std::int32_t>()[at] = static_cast<std::int32_t>(value);
      return;
    case DType::u8:
      x.ptr<std::uint8_t>()[at] = static_cast<std::uint8_t>(value);
      return;
  }
}

template <class T>
void copy_same(StreamRef stream, const View& to, const View& from) {
  each_run(stream, join_axes(to, from), [&](const Run& run) {
    T* const out = to.ptr<T>() + run.to;
    const T* const in = from.ptr<T>() + run.from;
    if (run.contiguous()) {
      std::memcpy(out, in, static_cast<std::size_t>(run.n) * sizeof(T));
      return;
    }
    for (std::int64_t i = 0; i < run.n; ++i)
      out[i * run.to_stride] = in[i * run.from_stride];
  });
}

// Calls fn with null pointers to two float dtypes.
template <class F>
void for_two_floats(DType to, DType from, F&& fn) {
  for_float(to, [&]<class To>(To* a) { for_float(from, [&]<class From>(From* b) { fn(a, b); }); });
}

template <class To, class From>
constexpr bool kBothVectors = Lane<To>::width > 1 && Lane<From>::width > 1;

template <class To, class From>
void convert_run(To* out, const From* in, const Run& run) {
  if constexpr (kBothVectors<To, From>) {
    if (run.contiguous()) {
      for_lanes<To>(run.n,
                    [&](std::int64_t i, auto count) { put(out + i, take(in + i, count), count); });
      return;
    }
  }
  for (std::int64_t i = 0; i < run.n; ++i) {
    store_one(out + i * run.to_stride,
              static_cast<Compute<To>>(load_one(in + i * run.from_stride)));
  }
}

template <class To, class From>
void accumulate_run(To* out, const From* in, const Run& run) {
  if constexpr (kBothVectors<To, From>) {
    if (run.contiguous()) {
      for_lanes<To>(run.n, [&](std::int64_t i, auto count) {
        put(out + i, take(out + i, count) + take(in + i, count), count);
      });
      return;
    }
  }
  for (std::int64_t i = 0; i < run.n; ++i) {
    To* const at = out + i * run.to_stride;
    store_one(at, load_one(at) + static_cast<Compute<To>>(load_one(in + i * run.from_stride)));
  }
}

void scale_with(StreamRef stream, const View& out, const View& a, double alpha) {
  for_float(a.dtype, [&]<class T>(T*) {
    const auto factor = every<T>(alpha);
    map_lanes<T>(stream, a.numel(), [&](std::int64_t i, auto count) {
      put(out.ptr<T>() + i, take(a.ptr<T>() + i, count) * factor, count);
    });
  });
}

}  // namespace

void fill(StreamRef stream, const View& x, double value) {
  switch (x.dtype) {
    case DType::f64:
      return fill_with(stream, x, value);
    case DType::f32:
      return fill_with(stream, x, static_cast<float>(value));
    case DType::bf16:
      return fill_with(stream, x, BFloat16(static_cast<float>(value)));
    case DType::f16:
      return fill_with(stream, x, Half(static_cast<float>(value)));
    case DType::i64:
      return fill_with(stream, x, static_cast<std::int64_t>(value));
    case DType::i32:
      return fill_with(stream, x, static_cast<std::int32_t>(value));
    case DType::u8:
      return fill_with(stream, x, static_cast<std::uint8_t>(value));
  }
}

void fill_by(StreamRef stream, const View& x, const View& value) {
  fill(stream, x, read(value, 0));
}

void copy(StreamRef stream, const View& to, const View& from) {
  if (to.dtype == from.dtype) {
    switch (size_of(to.dtype)) {
      case 1:
        return copy_same<std::uint8_t>(stream, to, from);
      case 2:
        return copy_same<std::uint16_t>(stream, to, from);
      case 4:
        return copy_same<std::uint32_t>(stream, to, from);
      default:
        return copy_same<std::uint64_t>(stream, to, from);
    }
  }
  const Pair pair = join_axes(to, from);
  if (is_float(to.dtype) && is_float(from.dtype)) {
    for_two_floats(to.dtype, from.dtype, [&]<class To, class From>(To*, From*) {
      each_run(stream, pair, [&](const Run& run) {
        convert_run(to.ptr<To>() + run.to, from.ptr<From>() + run.from, run);
      });
    });
    return;
  }
  each_run(stream, pair, [&](const Run& run) {
    for (std::int64_t i = 0; i < run.n; ++i) {
      write(to, run.to + i * run.to_stride, read(from, run.from + i * run.from_stride));
    }
  });
}

void accumulate(StreamRef stream, const View& to, const View& from) {
  const Pair pair = join_axes(to, from);
  for_two_floats(to.dtype, from.dtype, [&]<class To, class From>(To*, From*) {
    each_run(stream, pair, [&](const Run& run) {
      accumulate_run(to.ptr<To>() + run.to, from.ptr<From>() + run.from, run);
    });
  });
}

void add_forward(StreamRef stream, const View& out, const View& a, const View& b) {
  for_float(a.dtype, [&]<class T>(T*) {
    map_lanes<T>(stream, a.numel(), [&](std::int64_t i, auto count) {
      put(out.ptr<T>() + i, take(a.ptr<T>() + i, count) + take(b.ptr<T>() + i, count), count);
    });
  });
}

void mul_forward(StreamRef stream, const View& out, const View& a, const View& b) {
  for_float(a.dtype, [&]<class T>(T*) {
    map_lanes<T>(stream, a.numel(), [&](std::int64_t i, auto count) {
      put(out.ptr<T>() + i, take(a.ptr<T>() + i, count) * take(b.ptr<T>() + i, count), count);
    });
  });
}

void scale_forward(StreamRef stream, const View& out, const View& a, double alpha) {
  scale_with(stream, out, a, alpha);
}

void scale_by_forward(StreamRef stream, const View& out, const View& a, const View& alpha) {
  scale_with(stream, out, a, read(alpha, 0));
}

void sum_forward(StreamRef stream, const View& out, const View& x) {
  constexpr std::int64_t kPiece = 4096;
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const std::int64_t n = x.numel(), pieces = (n + kPiece - 1) / kPiece;
    const Scratch<A> partial(pieces + 1);
    partial[0] = 0;
    parallel_for(stream, n, kPiece, [&](std::int64_t begin, std::int64_t end) {
      auto total = every<T>(0);
      for_lanes<T>(end - begin, [&](std::int64_t i, auto count) {
        total += take(x.ptr<T>() + begin + i, count);
      });
      partial[begin / kPiece] = sum(total);
    });
    for (std::int64_t step = 1; step < pieces; step *= 2) {
      for (std::int64_t i = 0; i + step < pieces; i += 2 * step)
        partial[i] += partial[i + step];
    }
    *out.ptr<A>() = partial[0];
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
