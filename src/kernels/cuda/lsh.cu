// Locality-sensitive hashing of tokens, sorting by hash, and who sees whom then.

#include "kernels/cuda/tile/mma.cuh"
#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/cuda/tile/tokens.cuh"
#include "kernels/lsh.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSide = 64;       // tokens, and columns, of a block's products
constexpr int kInner = 16;      // features in shared memory at once
constexpr int kFour = 4;        // tokens, and columns, side by side, of one thread
constexpr int kSortAhead = 4;   // loads on their way, of a thread that sorts
constexpr int kSortWarps = 32;  // parts of a row that are sorted at once
// Of shared memory: without asking, and what any device of sm_80 on has.
constexpr std::int64_t kPlainBytes = 47 << 10, kSortBytes = 98 << 10;

// A block a sample. Reads the marks once.
__global__ void __launch_bounds__(kThreads)
    count_valid_kernel(std::int32_t* lengths, ValidTokens valid, std::int64_t tokens) {
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
                       const std::int32_t* lengths, ValidTokens valid, const Hashed s) {
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

// What the tensor-core kernel takes at once. Lane t of four has kEach neighbouring features of a
// row: the sum over features may run in any order where only a bound of its error counts.
template <int kWidth>
struct HashShape {
  static constexpr int kEach = kWidth / 4, kLoads = kEach / kVector, kSteps = kWidth / 16;
  static constexpr int kColumns = kWidth > 64 ? 64 : 128, kTiles = kColumns / 8;
  static constexpr int kParts = kThreads / kColumns, kQuads = 4 / kParts;
  // High and low halves of rotations, as lanes take them for B.
  using Weights = uint4[2][kTiles][kLoads][kWarp];
};
constexpr int kHashRows = 32;                            // tokens of a warp at a time
constexpr int kHashTurn = kThreads / kWarp * kHashRows;  // of a block
constexpr int kHashTokens = 2 * kHashTurn;               // for which it splits its rotations once

// The largest product, in size, of a token, and the second largest size.
struct Largest {
  float value = 0, second = 0;
  int column = 0;
  __device__ __forceinline__ void take(float other, int at) {
    const float size = fabsf(other), own = fabsf(value);
    second = fmaxf(second, fminf(size, own));
    value = size > own ? other : value;
    column = size > own ? at : column;
  }
  __device__ __forceinline__ void take_lane(int apart) {
    const float other = __shfl_xor_sync(~0u, value, apart),
                others = __shfl_xor_sync(~0u, second, apart);
    const int at = __shfl_xor_sync(~0u, column, apart);
    second = fmaxf(second, others);
    take(other, at);
  }
};

// Columns `left` and on, as two bf16 each; a column's squares are summed by kParts threads, of
// which each keeps the largest of its sums.
template <int kWidth>
__device__ __forceinline__ void split_rotations(typename HashShape<kWidth>::Weights& weights,
                                                unsigned (&largest)[4], const float* w,
                                                std::int64_t all, std::int64_t left,
                                                std::int64_t columns) {
  using Shape = HashShape<kWidth>;
  const int column = static_cast<int>(threadIdx.x) % Shape::kColumns,
            part = static_cast<int>(threadIdx.x) / Shape::kColumns;
  const bool there = left + column < columns;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Shape::kQuads; ++i) {
    const int t = part * Shape::kQuads + i;
#pragma unroll
    for (int j = 0; j < Shape::kLoads; ++j) {
      float high[kVector], low[kVector];
      unsigned words[2][kVector / 2];
#pragma unroll
      for (int e = 0; e < kVector; ++e)
        high[e] = there ? w[(t * Shape::kEach + j * kVector + e) * all + left + column] : 0.0f;
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        squares = fmaf(high[e], high[e], squares);
        low[e] = high[e] - to_float(from_float<bf16>(high[e]));
      }
#pragma unroll
      for (int e = 0; e < kVector / 2; ++e) {
        words[0][e] = pack<bf16>(high[2 * e], high[2 * e + 1]);
        words[1][e] = pack<bf16>(low[2 * e], low[2 * e + 1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
        weights[half][column / 8][j][column % 8 * 4 + t] =
            make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]);
    }
  }
  // Sizes as bits are in the order of the numbers, NaN above all.
  const unsigned most = __reduce_max_sync(~0u, __float_as_uint(squares));
  if (threadIdx.x % kWarp == 0) atomicMax(&largest[part], most);
}

// What lsh_buckets_kernel finds, of one token, by a warp.
template <class T>
__device__ __forceinline__ int exact_bucket(const T* x, const float* w, std::int64_t width,
                                            std::int64_t all, std::int64_t columns) {
  constexpr int kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Best best;
#pragma unroll 1
  for (std::int64_t left = 0; left < columns; left += kAtOnce * kWarp) {
    float sums[kAtOnce] = {};
#pragma unroll 4
    for (std::int64_t d = 0; d < width; ++d) {
      const float value = to_float(x[d]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t column = left + i * kWarp + lane;
        sums[i] = fmaf(value, column < columns ? w[d * all + column] : 0.0f, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t column = left + i * kWarp + lane;
      if (column >= columns) continue;
      best.take(sums[i], static_cast<int>(column));
      best.take(-sums[i], static_cast<int>(columns + column));
    }
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(~0u, best.value, offset);
    const int column = __shfl_xor_sync(~0u, best.column, offset);
    best.take(value, column);
  }
  return best.column;
}

// The same buckets by tensor cores. With rotations as two bf16 each, products differ from those of
// the contract by less than kWidth 2^-21 |x| |w|: 2^-18 for what the split leaves out, a rounding
// or truncation of 2^-23 of at most |x| |w| for each of the 17 terms of the kWidth / 8 steps, and
// kWidth roundings of 2^-24 on the other side. A token whose two largest products lie further apart
// than twice that has its bucket; for the others, about one in a thousand, a warp takes the
// contract's sums. Reads x once for every round, rotations once for every kHashTokens tokens.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    lsh_tensor_kernel(std::int32_t* bucket, const bf16* x, const float* rotations,
                      const std::int32_t* lengths, ValidTokens valid, const Hashed s) {
  using Shape = HashShape<kWidth>;
  __shared__ typename Shape::Weights weights;
  __shared__ unsigned largest[4];
  const std::int64_t head = blockIdx.y, round = blockIdx.z, b = quotient(head, s.heads),
                     h = head - b * s.heads;
  const std::int64_t wanted = (lengths[b] + 2 * s.bucket_size - 1) / (2 * s.bucket_size);
  const std::int64_t columns = wanted < 1 ? 1 : wanted < s.columns ? wanted : s.columns;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const bf16* const from = x + b * s.sample + h * s.head;
  const float* const w = rotations + round * s.width * s.columns;
  std::int32_t* const to = bucket + ((round * s.batch + b) * s.heads + h) * s.tokens;
  if (threadIdx.x < 4) largest[threadIdx.x] = 0;
#pragma unroll 1
  for (int turn = 0; turn < kHashTokens; turn += kHashTurn) {
    const std::int64_t first = std::int64_t{blockIdx.x} * kHashTokens + turn +
                               static_cast<int>(threadIdx.x) / kWarp * kHashRows;
    // Rows g, g + 8, g + 16, g + 24.
    unsigned a[2][Shape::kSteps][4];
    float squares[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t n = first + 8 * r + g;
      squares[r] = 0;
#pragma unroll
      for (int j = 0; j < Shape::kLoads; ++j) {
        uint4 raw = make_uint4(0, 0, 0, 0);
        if (n < s.tokens)
          raw =
              *reinterpret_cast<const uint4*>(from + n * s.token + t * Shape::kEach + j * kVector);
        a[r / 2][2 * j][r % 2] = raw.x, a[r / 2][2 * j][r % 2 + 2] = raw.y;
        a[r / 2][2 * j + 1][r % 2] = raw.z, a[r / 2][2 * j + 1][r % 2 + 2] = raw.w;
        float v[kVector];
        load8(v, reinterpret_cast<const bf16*>(&raw));
#pragma unroll
        for (int e = 0; e < kVector; ++e)
          squares[r] = fmaf(v[e], v[e], squares[r]);
      }
      squares[r] = quad_sum(squares[r]);
    }
    // As new values, which the compiler cannot know to be the old ones: or it would move each of
    // them from where the loads left it for every product.
    const auto nothing = static_cast<unsigned>(s.batch >> 32);
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[0][step][e] ^= nothing, a[1][step][e] ^= nothing;
    }
    Largest best[4];
#pragma unroll 1
    for (std::int64_t left = 0; left < columns; left += Shape::kColumns) {
      if (turn == 0 || columns > Shape::kColumns) {
        __syncthreads();
        split_rotations<kWidth>(weights, largest, w, s.columns, left, columns);
        __syncthreads();
      }
#pragma unroll 2
      for (int tile = 0; tile < Shape::kTiles; ++tile) {
        float sums[2][4] = {};
#pragma unroll
        for (int j = 0; j < Shape::kLoads; ++j) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4 raw = weights[half][tile][j][lane];
#pragma unroll
            for (int m = 0; m < 2; ++m) {
              mma<bf16>(sums[m], a[m][2 * j], raw.x, raw.y);
              mma<bf16>(sums[m], a[m][2 * j + 1], raw.z, raw.w);
            }
          }
        }
        const int column = static_cast<int>(left) + 8 * tile + 2 * t;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          best[r].take(sums[r / 2][r % 2 * 2], column);
          best[r].take(sums[r / 2][r % 2 * 2 + 1], column + 1);
        }
      }
    }
    float most = 0;
#pragma unroll
    for (int part = 0; part < Shape::kParts; ++part)
      most += __uint_as_float(largest[part]);
    unsigned open = 0;  // bit 4 g + r: a row that is not sure
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      best[r].take_lane(1);
      best[r].take_lane(2);
      const float error = static_cast<float>(kWidth) * 0x1p-21f * sqrtf(squares[r]) * sqrtf(most);
      // Numbers so small that products are lost altogether are not sure, nor is what is no number.
      const bool sure = error > 1e-30f && fabsf(best[r].value) - best[r].second > 2 * error;
      const std::int64_t n = first + 8 * r + g;
      const bool real = n < s.tokens && valid.of(b, n);
      if (t == 0 && n < s.tokens && (sure || !real)) {
        to[n] = !real ? static_cast<int>(2 * s.columns)
                      : best[r].column + (best[r].value < 0 ? static_cast<int>(columns) : 0);
      }
      open |= __ballot_sync(~0u, t == 0 && real && !sure) << r;
    }
#pragma unroll 1
    for (; open != 0; open &= open - 1) {
      const int bit = __ffs(static_cast<int>(open)) - 1;
      const std::int64_t n = first + bit % 4 * 8 + bit / 4;
      const int exact = exact_bucket(from + n * s.token, w, s.width, s.columns, columns);
      if (lane == 0) to[n] = exact;
    }
  }
}

// A block a row, a warp a part of it: the parts' counts, where each part's keys start, then a warp
// places 32 tokens at a time in order. Reads the keys twice, writes orders and slots once. Counters
// [parts, keys] in shared memory, or the row's own; staged: behind them the order, which is then
// written by neighbours.
__global__ void __launch_bounds__(kSortWarps* kWarp)
    sort_by_key_kernel(std::int32_t* order, std::int32_t* slot, const std::int32_t* key,
                       std::int32_t* counters, std::int64_t tokens, std::int64_t keys,
                       bool staged) {
  extern __shared__ std::int32_t shared[];
  __shared__ int sums[kSortWarps];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x),
            parts = threads / kWarp, warp = thread / kWarp, lane = thread % kWarp;
  std::int32_t* const all = counters != nullptr ? counters + blockIdx.x * keys * parts : shared;
  std::int32_t* const next = all + warp * keys;
  std::int32_t* const to_order = staged ? shared + parts * keys : order + blockIdx.x * tokens;
  const std::int32_t* const of = key + blockIdx.x * tokens;
  const std::int64_t length = (tokens + threads - 1) / threads * kWarp, from = warp * length,
                     to = from + length < tokens ? from + length : tokens;
  for (std::int64_t k = lane; k < keys; k += kWarp)
    next[k] = 0;
  __syncwarp();
#pragma unroll 4
  for (std::int64_t n = from + lane; n < to; n += kWarp)
    atomicAdd(&next[of[n]], 1);  // whole numbers: any order gives the same
  __syncthreads();
  const std::int64_t run = (keys + threads - 1) / threads;
  const std::int64_t begin = thread * run < keys ? thread * run : keys,
                     end = begin + run < keys ? begin + run : keys;
  int own = 0;
  for (std::int64_t k = begin; k < end; ++k) {
#pragma unroll 8
    for (int part = 0; part < parts; ++part)
      own += all[part * keys + k];
  }
  int up_to = own;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int lower = __shfl_up_sync(~0u, up_to, offset);
    if (lane >= offset) up_to += lower;
  }
  if (lane == kWarp - 1) sums[warp] = up_to;
  __syncthreads();
  int at = up_to - own;
  for (int w = 0; w < warp; ++w)
    at += sums[w];
  for (std::int64_t k = begin; k < end; ++k) {
#pragma unroll 8
    for (int part = 0; part < parts; ++part) {
      const int count = all[part * keys + k];
      all[part * keys + k] = at;
      at += count;
    }
  }
  __syncthreads();
  int keys_ahead[kSortAhead];
#pragma unroll
  for (int i = 0; i < kSortAhead; ++i) {
    const std::int64_t n = from + i * kWarp + lane;
    keys_ahead[i] = n < to ? of[n] : -1;
  }
  for (std::int64_t first = from; first < to; first += kWarp) {
    const std::int64_t ahead = first + kSortAhead * kWarp + lane;
    const int mine = keys_ahead[0];
#pragma unroll
    for (int i = 0; i + 1 < kSortAhead; ++i)
      keys_ahead[i] = keys_ahead[i + 1];
    keys_ahead[kSortAhead - 1] = ahead < to ? of[ahead] : -1;
    const unsigned alike = __match_any_sync(~0u, mine);
    const int rank = __popc(alike & ((1u << lane) - 1));
    const int start = mine >= 0 ? next[mine] : 0;
    __syncwarp();
    if (mine >= 0) {
      const std::int64_t n = first + lane, s = start + rank;
      to_order[s] = static_cast<std::int32_t>(n);
      slot[blockIdx.x * tokens + n] = static_cast<std::int32_t>(s);
      if (rank == 0) next[mine] = start + __popc(alike);
    }
    __syncwarp();
  }
  if (!staged) return;
  __syncthreads();
  for (std::int64_t n = thread; n < tokens; n += threads)
    order[blockIdx.x * tokens + n] = to_order[n];
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
      lengths.ptr<std::int32_t>(), ValidTokens(valid), tokens);
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
        lengths.ptr<const std::int32_t>(), ValidTokens(valid), s);
    check_launch("lsh_buckets");
  };
  if (const bool packed = is_aligned(x.data) && s.step == 1 && s.token % kVector == 0 &&
                          s.head % kVector == 0 && s.sample % kVector == 0;
      x.dtype == DType::bf16 && packed) {
    const auto* const from = x.ptr<const bf16>();
    if (s.width == 32) return launch(lsh_tensor_kernel<32>, from, kHashTokens);
    if (s.width == 64) return launch(lsh_tensor_kernel<64>, from, kHashTokens);
    if (s.width == 128) return launch(lsh_tensor_kernel<128>, from, kHashTokens);
  }
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
  const std::int64_t each = keys * static_cast<std::int64_t>(sizeof(std::int32_t)),
                     stage = tokens * static_cast<std::int64_t>(sizeof(std::int32_t));
  const bool fits = each <= kSortBytes;
  const std::int64_t room = fits ? kSortBytes / each : kSortWarps,
                     pieces = (tokens + kWarp - 1) / kWarp;
  std::int64_t warps = room < kSortWarps ? room : kSortWarps;
  if (pieces < warps) warps = pieces;
  const bool staged = fits && warps * each + stage <= kSortBytes;
  auto* const counters =
      fits ? nullptr
           : static_cast<std::int32_t*>(
                 scratch(stream, static_cast<std::size_t>(rows * warps * each), "sort_by_key"));
  const auto bytes = static_cast<std::size_t>((fits ? warps * each : 0) + (staged ? stage : 0));
  if (bytes > kPlainBytes) {
    check_call(cudaFuncSetAttribute(sort_by_key_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kSortBytes)),
               "sort_by_key");
  }
  sort_by_key_kernel<<<static_cast<unsigned>(rows), static_cast<unsigned>(warps * kWarp), bytes,
                       stream_of(stream)>>>(order.ptr<std::int32_t>(), slot.ptr<std::int32_t>(),
                                            key.ptr<const std::int32_t>(), counters, tokens, keys,
                                            staged);
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
