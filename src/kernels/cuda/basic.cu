// Filling, copying, converting, adding and summing.

#include "core/half.h"
#include "kernels/basic.h"
#include "kernels/cuda/tile/map.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 4096;  // elements of one partial sum
constexpr int kTreeThreads = 1024;

struct Same {
  __device__ float operator()(float a) const { return a; }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Multiply {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Scale {
  float factor;
  __device__ float operator()(float a) const { return a * factor; }
};
// The factor is in device memory, in one of two dtypes.
struct ScaleBy {
  const float* single;
  const double* twice;
  float factor = 0;
  __device__ void start() { factor = single ? *single : static_cast<float>(*twice); }
  __device__ float operator()(float a) const { return a * factor; }
};

// Writes x once, in 16-byte stores where x is aligned.
template <class Word>
__global__ void __launch_bounds__(kThreads) fill_kernel(Word* x, std::int64_t n, Word value) {
  constexpr int kWords = 16 / sizeof(Word);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t at = i * kWords;
  if (at >= n) return;
  if (reinterpret_cast<unsigned long long>(x) % 16 == 0 && at + kWords <= n) {
    alignas(16) Word words[kWords];
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      words[k] = value;
    *reinterpret_cast<uint4*>(x + at) = *reinterpret_cast<const uint4*>(words);
    return;
  }
  for (std::int64_t k = at; k < at + kWords && k < n; ++k)
    x[k] = value;
}

template <class Word>
void fill_words(StreamRef stream, const View& x, Word value) {
  const std::int64_t n = x.numel();
  fill_kernel<Word><<<blocks_for(n, kThreads * (16 / static_cast<int>(sizeof(Word)))), kThreads, 0,
                      stream_of(stream)>>>(x.ptr<Word>(), n, value);
  check_launch("fill");
}

template <class T, class V>
__global__ void __launch_bounds__(kThreads) fill_by_kernel(T* x, std::int64_t n, const V* value) {
  const T word = from_float<T>(to_float(*value));
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step)
    x[i] = word;
}

// Two views of one shape: axes of size 1 dropped, neighbouring axes joined where both allow it.
// Strides in elements, or in units of some elements after `widen`.
struct Walk {
  int rank = 0;
  std::int64_t n = 1;
  std::int64_t dim[kMaxRank] = {}, to[kMaxRank] = {}, from[kMaxRank] = {};

  bool is_contiguous() const { return rank == 0 || (rank == 1 && to[0] == 1 && from[0] == 1); }
  // Whether every run of `unit` elements is contiguous on both sides and starts at a multiple.
  bool holds(std::int64_t unit) const {
    if (rank == 0) return unit == 1;
    const int last = rank - 1;
    if (to[last] != 1 || from[last] != 1 || dim[last] % unit != 0) return unit == 1;
    for (int i = 0; i < last; ++i) {
      if (to[i] % unit != 0 || from[i] % unit != 0) return false;
    }
    return true;
  }
  void widen(std::int64_t unit) {
    if (unit == 1) return;
    for (int i = 0; i < rank - 1; ++i)
      to[i] /= unit, from[i] /= unit;
    dim[rank - 1] /= unit;
    n /= unit;
  }
};

Walk join_axes(const View& to, const View& from) {
  Walk out;
  for (int i = 0; i < to.rank; ++i) {
    out.n *= to.dim[i];
    if (to.dim[i] == 1) continue;
    const int last = out.rank - 1;
    if (out.rank > 0 && out.to[last] == to.stride[i] * to.dim[i] &&
        out.from[last] == from.stride[i] * to.dim[i]) {
      out.dim[last] *= to.dim[i];
    } else {
      out.dim[out.rank++] = to.dim[i];
    }
    out.to[out.rank - 1] = to.stride[i];
    out.from[out.rank - 1] = from.stride[i];
  }
  return out;
}

// move(to, from) for every unit, at its offsets in units. Reads and writes each unit once; one
// thread a unit in the order of the shape.
template <class Move>
__global__ void __launch_bounds__(kThreads) strided_kernel(const Walk walk, const Move move) {
  std::int64_t rest = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (rest >= walk.n) return;
  std::int64_t to = 0, from = 0;
#pragma unroll
  for (int axis = kMaxRank - 1; axis >= 0; --axis) {
    if (axis >= walk.rank) continue;
    const std::int64_t outer = axis == 0 ? 0 : quotient(rest, walk.dim[axis]);
    const std::int64_t at = rest - outer * walk.dim[axis];
    to += at * walk.to[axis];
    from += at * walk.from[axis];
    rest = outer;
  }
  move(to, from);
}

template <class Move>
void move_strided(StreamRef stream, const char* launcher, Walk walk, std::int64_t unit,
                  const Move& move) {
  walk.widen(unit);
  strided_kernel<<<blocks_for(walk.n, kThreads), kThreads, 0, stream_of(stream)>>>(walk, move);
  check_launch(launcher);
}

template <class Word>
struct MoveWord {
  Word* to;
  const Word* from;
  __device__ void operator()(std::int64_t t, std::int64_t f) const { to[t] = from[f]; }
};

template <int kWidth, bool kAdds, class To, class From>
struct MoveFloats {
  To* to;
  const From* from;
  __device__ void operator()(std::int64_t t, std::int64_t f) const {
    Packed<From, kWidth> in;
    in.load(from + f * kWidth);
    float x[kWidth];
    in.unpack(x);
    if constexpr (kAdds) {
      Packed<To, kWidth> old;
      old.load(to + t * kWidth);
      float y[kWidth];
      old.unpack(y);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        x[i] += y[i];
    }
    store_packed(to + t * kWidth, x);
  }
};

// Any two dtypes, through f64, as the CPU does it.
struct MoveAny {
  void* to;
  const void* from;
  DType to_dtype, from_dtype;
  __device__ double read(std::int64_t at) const {
    switch (from_dtype) {
      case DType::f64:
        return static_cast<const double*>(from)[at];
      case DType::f32:
        return static_cast<double>(static_cast<const float*>(from)[at]);
      case DType::bf16:
        return static_cast<double>(to_float(static_cast<const bf16*>(from)[at]));
      case DType::f16:
        return static_cast<double>(to_float(static_cast<const f16*>(from)[at]));
      case DType::i64:
        return static_cast<double>(static_cast<const std::int64_t*>(from)[at]);
      case DType::i32:
        return static_cast<const std::int32_t*>(from)[at];
      case DType::u8:
        return static_cast<const std::uint8_t*>(from)[at];
    }
    return 0;
  }
  __device__ void operator()(std::int64_t t, std::int64_t f) const {
    const double value = read(f);
    const float single = static_cast<float>(value);
    switch (to_dtype) {
      case DType::f64:
        static_cast<double*>(to)[t] = value;
        return;
      case DType::f32:
        static_cast<float*>(to)[t] = single;
        return;
      case DType::bf16:
        static_cast<bf16*>(to)[t] = from_float<bf16>(single);
        return;
      case DType::f16:
        static_cast<f16*>(to)[t] = from_float<f16>(single);
        return;
      case DType::i64:
        static_cast<std::int64_t*>(to)[t] = static_cast<std::int64_t>(value);
        return;
      case DType::i32:
        static_cast<std::int32_t*>(to)[t] = static_cast<std::int32_t>(value);
        return;
      case DType::u8:
        static_cast<std::uint8_t*>(to)[t] = static_cast<std::uint8_t>(value);
        return;
    }
  }
};

template <class Word>
void move_words(StreamRef stream, const View& to, const View& from, const Walk& walk,
                std::int64_t unit) {
  move_strided(stream, "copy", walk, unit, MoveWord<Word>{to.ptr<Word>(), from.ptr<Word>()});
}

// One dtype: the widest words that the strides and addresses allow.
void copy_same(StreamRef stream, const View& to, const View& from, const Walk& walk) {
  const std::int64_t size = size_of(to.dtype);
  const unsigned long long both = reinterpret_cast<unsigned long long>(to.data) |
                                  reinterpret_cast<unsigned long long>(from.data);
  std::int64_t bytes = 16;
  while (bytes > size &&
         (both % static_cast<unsigned long long>(bytes) != 0 || !walk.holds(bytes / size)))
    bytes /= 2;
  switch (bytes) {
    case 16:
      return move_words<uint4>(stream, to, from, walk, bytes / size);
    case 8:
      return move_words<std::uint64_t>(stream, to, from, walk, bytes / size);
    case 4:
      return move_words<std::uint32_t>(stream, to, from, walk, bytes / size);
    case 2:
      return move_words<std::uint16_t>(stream, to, from, walk, bytes / size);
    default:
      return move_words<std::uint8_t>(stream, to, from, walk, bytes / size);
  }
}

template <bool kAdds>
void move_floats(StreamRef stream, const char* launcher, const View& to, const View& from,
                 const Walk& walk) {
  for_float(to.dtype, launcher, [&](auto a) {
    for_float(from.dtype, launcher, [&](auto b) {
      using To = decltype(a);
      using From = decltype(b);
      To* const out = to.ptr<To>();
      const From* const in = from.ptr<From>();
      if (walk.is_contiguous()) {
        if constexpr (kAdds)
          map(stream, launcher, walk.n, Add{}, out, out, in);
        else
          map(stream, launcher, walk.n, Same{}, out, in);
      } else if (is_aligned(out) && is_aligned(in) && walk.holds(kVector)) {
        move_strided(stream, launcher, walk, kVector,
                     MoveFloats<kVector, kAdds, To, From>{out, in});
      } else {
        move_strided(stream, launcher, walk, 1, MoveFloats<1, kAdds, To, From>{out, in});
      }
    });
  });
}

// Reads x once. Block p writes the sum of piece p.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    piece_sum_kernel(float* partial, const T* x, std::int64_t n) {
  __shared__ float warps[kThreads / kWarp];
  const std::int64_t begin = std::int64_t{blockIdx.x} * kPiece;
  float sum = 0;
#pragma unroll
  for (int step = 0; step < kPiece / (kThreads * kWidth); ++step) {
    const std::int64_t at = begin + (step * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
    if (at + kWidth <= n) {
      Packed<T, kWidth> in;
      in.load(x + at);
      float v[kWidth];
      in.unpack(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum += v[i];
    } else {
      for (std::int64_t i = at; i < n; ++i)
        sum += to_float(x[i]);
    }
  }
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block. A binary tree over the pieces, in place.
__global__ void __launch_bounds__(kTreeThreads)
    tree_sum_kernel(float* out, float* partial, std::int64_t pieces) {
  for (std::int64_t step = 1; step < pieces; step *= 2) {
    for (std::int64_t i = std::int64_t{threadIdx.x} * 2 * step; i + step < pieces;
         i += 2 * step * kTreeThreads)
      partial[i] += partial[i + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = partial[0];
}

}  // namespace

void fill(StreamRef stream, const View& x, double value) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  if (value == 0) {  // all bits zero in every dtype
    check_call(cudaMemsetAsync(x.data, 0, static_cast<std::size_t>(n * size_of(x.dtype)),
                               stream_of(stream)),
               "fill");
    return;
  }
  switch (x.dtype) {
    case DType::f64:
      return fill_words(stream, x, value);
    case DType::f32:
      return fill_words(stream, x, static_cast<float>(value));
    case DType::bf16:
      return fill_words(stream, x, bf16_bits(static_cast<float>(value)));
    case DType::f16:
      return fill_words(stream, x, half_bits(static_cast<float>(value)));
    case DType::i64:
      return fill_words(stream, x, static_cast<std::int64_t>(value));
    case DType::i32:
      return fill_words(stream, x, static_cast<std::int32_t>(value));
    case DType::u8:
      return fill_words(stream, x, static_cast<std::uint8_t>(value));
  }
}

void fill_by(StreamRef stream, const View& x, const View& value) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  const std::int64_t blocks = (n + kThreads - 1) / kThreads, most = 8L * multiprocessors();
  for_float(x.dtype, "fill_by", [&](auto a) {
    for_float(value.dtype, "fill_by", [&](auto b) {
      using T = decltype(a);
      using V = decltype(b);
      fill_by_kernel<T, V><<<static_cast<unsigned>(blocks < most ? blocks : most), kThreads, 0,
                             stream_of(stream)>>>(x.ptr<T>(), n, value.ptr<V>());
      check_launch("fill_by");
    });
  });
}

void copy(StreamRef stream, const View& to, const View& from) {
  if (to.numel() == 0) return;
  const Walk walk = join_axes(to, from);
  if (to.dtype != from.dtype) {
    if (is_float(to.dtype) && is_float(from.dtype) && to.dtype != DType::f64 &&
        from.dtype != DType::f64)
      return move_floats<false>(stream, "copy", to, from, walk);
    return move_strided(stream, "copy", walk, 1, MoveAny{to.data, from.data, to.dtype, from.dtype});
  }
  if (!walk.is_contiguous()) return copy_same(stream, to, from, walk);
  check_call(
      cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(walk.n * size_of(to.dtype)),
                      cudaMemcpyDeviceToDevice, stream_of(stream)),
      "copy");
}

void accumulate(StreamRef stream, const View& to, const View& from) {
  if (to.numel() == 0) return;
  move_floats<true>(stream, "accumulate", to, from, join_axes(to, from));
}

void add_forward(StreamRef stream, const View& out, const View& a, const View& b) {
  for_float(a.dtype, "add", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "add", a.numel(), Add{}, out.ptr<T>(), a.ptr<T>(), b.ptr<T>());
  });
}

void mul_forward(StreamRef stream, const View& out, const View& a, const View& b) {
  for_float(a.dtype, "mul", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "mul", a.numel(), Multiply{}, out.ptr<T>(), a.ptr<T>(), b.ptr<T>());
  });
}

void scale_forward(StreamRef stream, const View& out, const View& a, double alpha) {
  for_float(a.dtype, "scale", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "scale", a.numel(), Scale{static_cast<float>(alpha)}, out.ptr<T>(), a.ptr<T>());
  });
}

void scale_by_forward(StreamRef stream, const View& out, const View& a, const View& alpha) {
  if (alpha.dtype != DType::f32 && alpha.dtype != DType::f64) refuse("scale_by", alpha.dtype);
  const bool single = alpha.dtype == DType::f32;
  const ScaleBy by{single ? alpha.ptr<float>() : nullptr, single ? nullptr : alpha.ptr<double>()};
  for_float(a.dtype, "scale_by", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "scale_by", a.numel(), by, out.ptr<T>(), a.ptr<T>());
  });
}

void sum_forward(StreamRef stream, const View& out, const View& x) {
  const std::int64_t n = x.numel(), pieces = (n + kPiece - 1) / kPiece;
  if (pieces == 0) return fill(stream, out, 0);
  float* const total = out.ptr<float>();
  float* const partial =
      pieces == 1 ? total
                  : static_cast<float*>(
                        scratch(stream, static_cast<std::size_t>(pieces) * sizeof(float), "sum"));
  for_float(x.dtype, "sum", [&](auto zero) {
    using T = decltype(zero);
    const auto blocks = static_cast<unsigned>(pieces);
    if (is_aligned(x.data)) {
      piece_sum_kernel<kVector, T>
          <<<blocks, kThreads, 0, stream_of(stream)>>>(partial, x.ptr<T>(), n);
    } else {
      piece_sum_kernel<1, T><<<blocks, kThreads, 0, stream_of(stream)>>>(partial, x.ptr<T>(), n);
    }
    check_launch("sum");
  });
  if (pieces == 1) return;
  tree_sum_kernel<<<1, kTreeThreads, 0, stream_of(stream)>>>(total, partial, pieces);
  check_launch("sum");
}

}  // namespace fovea::cuda
