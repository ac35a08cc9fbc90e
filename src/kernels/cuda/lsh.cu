// Locality-sensitive hashing of tokens, sorting by hash, and who sees whom then.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/lsh.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSide = 64;                   // tokens, and columns, of a block's products
constexpr int kInner = 16;                  // features in shared memory at once
constexpr int kFour = 4;                    // tokens, and columns, side by side, of one thread
constexpr std::int64_t kSharedKeys = 8192;  // counters that fit shared memory

struct Valid {
  const std::uint8_t* marks;
  std::int64_t sample, token;
  explicit Valid(const View& x)
      : marks(x.ptr<std::uint8_t>()), sample(x.stride[0]), token(x.stride[1]) {}
  __device__ __forceinline__ bool of(std::int64_t b, std::int64_t n) const {
    return marks == nullptr || marks[b * sample + n * token] != 0;
  }
};

// A block a sample. Reads the marks once.
__global__ void __launch_bounds__(kThreads)
    count_valid_kernel(std::int32_t* lengths, Valid valid, std::int64_t tokens) {
  __shared__ int warps[kThreads / kWarp];
  int own = 0;
  for (std::int64_t n = threadIdx.x; n < tokens; n += kThreads)
    own += valid.of(blockIdx.x, n) ? 1 : 0;
  own = block_sum<kThreads>(own, warps);
  if (threadIdx.x == 0) lengths[blockIdx.x] = own;
}

// The larger product, the lower column among equals: the same winner in any order.
struct Best {
  float value = -INFINITY;
  int column = 0;
  __device__ __forceinline__ void take(float other, int at) {
    if (other > value || (other == value && at < column)) {
      value = other;
      column = at;
    }
  }
};

struct Hashed {
  std::int64_t sample, head, token, step;  // strides of x
  std::int64_t batch, heads, tokens, width, columns, bucket_size;
};

// A block has kSides x 64 tokens of a head and round, and walks as many columns at a time. A thread
// has four neighbours of every 64 tokens and of every 64 columns. Features are added in their order
// by fused multiply-adds, as on the CPU. Reads x once for every 64 kSides columns.
template <class T, int kSides>
__global__ void __launch_bounds__(kThreads)
    lsh_buckets_kernel(std::int32_t* bucket, const T* x, const float* rotations,
                       const std::int32_t* lengths, Valid valid, const Hashed s) {
  constexpr int kAll = kSides * kSide, kEach = kSides * kFour, kAcross = kSide / kFour;
  __shared__ float4 rows[kInner][kAll / kFour + 1], weights[kInner][kAll / kFour];
  const std::int64_t head = blockIdx.y, round = blockIdx.z;
  const std::int64_t b = head / s.heads, h = head - b * s.heads,
                     first = std::int64_t{blockIdx.x} * kAll;
  const std::int64_t wanted = (lengths[b] + 2 * s.bucket_size - 1) / (2 * s.bucket_size);
  const std::int64_t columns = wanted < 1 ? 1 : wanted < s.columns ? wanted : s.columns;
  const int across = static_cast<int>(threadIdx.x) % kAcross,
            down = static_cast<int>(threadIdx.x) / kAcross;
  const auto place = [](int four, int i) { return i / kFour * kSide + four * kFour + i % kFour; };
  const T* const from = x + b * s.sample + h * s.head;
  const float* const w = rotations + round * s.width * s.columns;
  Best best[kEach];
  for (std::int64_t left = 0; left < columns; left += kAll) {
    float sums[kEach][kEach] = {};
    for (std::int64_t d = 0; d < s.width; d += kInner) {
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x); i < kAll * kInner; i += kThreads) {
        const int inner = i % kInner, row = i / kInner;
        const bool real = d + inner < s.width && first + row < s.tokens;
        reinterpret_cast<float*>(rows[inner])[row] =
            real ? to_float(from[(first + row) * s.token + (d + inner) * s.step]) : 0.0f;
        const int column = i % kAll, feature = i / kAll;
        const bool there = d + feature < s.width && left + column < columns;
        reinterpret_cast<float*>(weights[feature])[column] =
            there ? w[(d + feature) * s.columns + left + column] : 0.0f;
      }
      __syncthreads();
      const int most = s.width - d < kInner ? static_cast<int>(s.width - d) : kInner;
#pragma unroll 4
      for (int k = 0; k < most; ++k) {
        float own[kEach], other[kEach];
#pragma unroll
        for (int side = 0; side < kSides; ++side) {
          const float4 a = rows[k][side * kAcross + down], c = weights[k][side * kAcross + across];
          own[4 * side] = a.x, own[4 * side + 1] = a.y, own[4 * side + 2] = a.z;
          own[4 * side + 3] = a.w;
          other[4 * side] = c.x, other[4 * side + 1] = c.y, other[4 * side + 2] = c.z;
          other[4 * side + 3] = c.w;
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j)
            sums[i][j] = fmaf(own[i], other[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t column = left + place(across, j);
      if (column >= columns) continue;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        best[i].take(sums[i][j], static_cast<int>(column));
        best[i].take(-sums[i][j], static_cast<int>(columns + column));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int offset = kAcross / 2; offset > 0; offset /= 2) {
      const float value = __shfl_xor_sync(~0u, best[i].value, offset);
      const int column = __shfl_xor_sync(~0u, best[i].column, offset);
      best[i].take(value, column);
    }
    const std::int64_t n = first + place(down, i);
    if (across != 0 || n >= s.tokens) continue;
    bucket[((round * s.batch + b) * s.heads + h) * s.tokens + n] =
        valid.of(b, n) ? best[i].column : static_cast<int>(2 * s.columns);
  }
}

// A block a row: counts, starts of the keys, then one warp places 32 tokens at a time in order.
// Reads the keys twice, writes orders and slots once. Counters in shared memory, or the row's own.
__global__ void __launch_bounds__(kThreads)
    sort_by_key_kernel(std::int32_t* order, std::int32_t* slot, const std::int32_t* key,
                       std::int32_t* counters, std::int64_t tokens, std::int64_t keys) {
  extern __shared__ std::int32_t shared[];
  __shared__ int sums[kThreads];
  std::int32_t* const next = counters != nullptr ? counters + blockIdx.x * keys : shared;
  const std::int32_t* const of = key + blockIdx.x * tokens;
  for (std::int64_t k = threadIdx.x; k < keys; k += kThreads)
    next[k] = 0;
  __syncthreads();
  for (std::int64_t n = threadIdx.x; n < tokens; n += kThreads)
    atomicAdd(&next[of[n]], 1);  // whole numbers: any order gives the same
  __syncthreads();
  const std::int64_t run = (keys + kThreads - 1) / kThreads;
  const std::int64_t begin = threadIdx.x * run < keys ? threadIdx.x * run : keys,
                     end = begin + run < keys ? begin + run : keys;
  int own = 0;
  for (std::int64_t k = begin; k < end; ++k)
    own += next[k];
  sums[threadIdx.x] = own;
  __syncthreads();
  int at = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t)
    at += sums[t];
  for (std::int64_t k = begin; k < end; ++k) {
    const int count = next[k];
    next[k] = at;
    at += count;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  const int lane = static_cast<int>(threadIdx.x);
  int mine = lane < tokens ? of[lane] : -1;
  for (std::int64_t first = 0; first < tokens; first += kWarp) {
    const std::int64_t ahead = first + kWarp + lane;
    const int later = ahead < tokens ? of[ahead] : -1;
    const unsigned alike = __match_any_sync(~0u, mine);
    const int rank = __popc(alike & ((1u << lane) - 1));
    const int start = mine >= 0 ? next[mine] : 0;
    __syncwarp();
    if (mine >= 0) {
      const std::int64_t n = first + lane, s = start + rank;
      order[blockIdx.x * tokens + s] = static_cast<std::int32_t>(n);
      slot[blockIdx.x * tokens + n] = static_cast<std::int32_t>(s);
      if (rank == 0) next[mine] = start + __popc(alike);
    }
    __syncwarp();
    mine = later;
  }
}

// A block a query tile of a row, a thread a query. Keys' places are read by all threads at once.
__global__ void __launch_bounds__(kSide)
    lsh_sight_kernel(std::int32_t* list, std::uint64_t* words, const std::int32_t* bucket,
                     const std::int32_t* order, const std::int32_t* slot,
                     const std::int32_t* lengths, const LshPart part, std::int64_t rounds,
                     std::int64_t rows, std::int64_t tokens, std::int64_t tiles, std::int64_t width,
                     std::int64_t heads) {
  const std::int64_t p = quotient(blockIdx.x, tiles), t = blockIdx.x - p * tiles;
  const LshSight sight{part,
                       bucket + p * tokens,
                       order + p * tokens,
                       slot + p * tokens,
                       rounds,
                       rows * tokens,
                       tokens,
                       lengths[quotient(p, heads)]};
  std::int64_t first, last;
  sight.tiles(t, first, last);
  for (std::int64_t e = 0; e < width; ++e) {
    const bool listed = first + e < last;
    const std::int64_t at = blockIdx.x * width + e;
    if (threadIdx.x == 0) list[at] = listed ? static_cast<std::int32_t>(first + e) : -1;
    words[at * kSide + threadIdx.x] =
        listed ? sight.word(t * kSide + threadIdx.x, first + e) : std::uint64_t{0};
  }
}

}  // namespace

void count_valid(StreamRef stream, const View& lengths, const View& valid, std::int64_t tokens) {
  if (lengths.dim[0] == 0) return;
  count_valid_kernel<<<static_cast<unsigned>(lengths.dim[0]), kThreads, 0, stream_of(stream)>>>(
      lengths.ptr<std::int32_t>(), Valid(valid), tokens);
  check_launch("count_valid");
}

void lsh_buckets(StreamRef stream, const View& bucket, const View& x, const View& rotations,
                 const View& lengths, const View& valid, std::int64_t bucket_size) {
  if (bucket.numel() == 0) return;
  const Hashed s{x.stride[0], x.stride[1], x.stride[2], x.stride[3],      x.dim[0],
                 x.dim[1],    x.dim[2],    x.dim[3],    rotations.dim[2], bucket_size};
  if (s.batch * s.heads > 65535) refuse("lsh_buckets", "more than 65535 heads of samples");
  const auto launch = [&](auto kernel, auto* from, int tokens) {
    const dim3 grid(blocks_for(s.tokens, tokens), static_cast<unsigned>(s.batch * s.heads),
                    static_cast<unsigned>(rotations.dim[0]));
    kernel<<<grid, kThreads, 0, stream_of(stream)>>>(
        bucket.ptr<std::int32_t>(), from, rotations.ptr<const float>(),
        lengths.ptr<const std::int32_t>(), Valid(valid), s);
    check_launch("lsh_buckets");
  };
  for_float(x.dtype, "lsh_buckets", [&](auto zero) {
    using T = decltype(zero);
    if (s.columns > kSide)
      launch(lsh_buckets_kernel<T, 2>, x.ptr<const T>(), 2 * kSide);
    else
      launch(lsh_buckets_kernel<T, 1>, x.ptr<const T>(), kSide);
  });
}

void sort_by_key(StreamRef stream, const View& order, const View& slot, const View& key,
                 std::int64_t keys) {
  const std::int64_t rows = key.rows(), tokens = key.cols();
  if (key.numel() == 0) return;
  const bool fits = keys <= kSharedKeys;
  const auto bytes = static_cast<std::size_t>(keys) * sizeof(std::int32_t);
  auto* const counters = fits ? nullptr
                              : static_cast<std::int32_t*>(scratch(
                                    stream, static_cast<std::size_t>(rows) * bytes, "sort_by_key"));
  sort_by_key_kernel<<<static_cast<unsigned>(rows), kThreads, fits ? bytes : 0,
                       stream_of(stream)>>>(order.ptr<std::int32_t>(), slot.ptr<std::int32_t>(),
                                            key.ptr<const std::int32_t>(), counters, tokens, keys);
  check_launch("sort_by_key");
}

void lsh_sight(StreamRef stream, const View& list, const View& words, const View& bucket,
               const View& order, const View& slot, const View& lengths, const LshPart& part) {
  const std::int64_t rows = list.dim[0], tiles = list.dim[1];
  if (list.numel() == 0) return;
  lsh_sight_kernel<<<static_cast<unsigned>(rows * tiles), kSide, 0, stream_of(stream)>>>(
      list.ptr<std::int32_t>(), words.ptr<std::uint64_t>(), bucket.ptr<const std::int32_t>(),
      order.ptr<const std::int32_t>(), slot.ptr<const std::int32_t>(),
      lengths.ptr<const std::int32_t>(), part, order.dim[0], rows, order.dim[2], tiles, list.dim[2],
      rows / lengths.dim[0]);
  check_launch("lsh_sight");
}

}  // namespace fovea::cuda
