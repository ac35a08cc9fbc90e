// Rows looked up in tables, and their gradient: rows are sorted by id, stably and by integers
// alone, so that each id's rows are added in ascending order.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/embedding.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;  // one thread a digit
static_assert(kDigits == kThreads, "a thread counts one digit");
constexpr int kRounds = 8;                 // of 32 rows, a warp
constexpr int kTile = kThreads * kRounds;  // rows a block sorts
constexpr int kPiece = 64;  // rows of one id that one warp adds; longer lists are cut
constexpr int kWindow = 8;  // sorted rows a warp looks at for the starts of pieces
constexpr int kFlight = 8;  // rows in flight a warp
constexpr int kForwardUnroll = 2;

// One pack a thread and step. Reads each table row that is named once a time it is named, writes
// out once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(T* __restrict__ out, const std::int32_t* __restrict__ ids,
                   const T* __restrict__ table, const T* __restrict__ places,
                   const std::int32_t* __restrict__ positions, std::int64_t n, std::int64_t packs,
                   std::int64_t period) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads * kForwardUnroll + threadIdx.x;
  Packed<T, kWidth> a[kForwardUnroll], b[kForwardUnroll];
#pragma unroll
  for (int u = 0; u < kForwardUnroll; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (i >= n) continue;
    const std::int64_t row = quotient(i, packs), pack = i - row * packs;
    const std::int64_t in_period = period > 0 ? row - quotient(row, period) * period : 0;
    const std::int64_t id = ids != nullptr ? ids[row] : in_period;
    a[u].load(table + (id * packs + pack) * kWidth);
    if (places == nullptr) continue;
    const std::int64_t place = positions != nullptr ? positions[row] : in_period;
    b[u].load(places + (place * packs + pack) * kWidth);
  }
#pragma unroll
  for (int u = 0; u < kForwardUnroll; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (i >= n) continue;
    float x[kWidth], y[kWidth];
    a[u].unpack(x);
    if (places != nullptr) {
      b[u].unpack(y);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        x[k] += y[k];
    }
    store_packed(out + i * kWidth, x);
  }
}

// dtable[p] += dy[p] + dy[p + period] + ..., one pack a thread. Reads dy once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    periodic_kernel(float* __restrict__ dtable, const T* __restrict__ dy, std::int64_t rows,
                    std::int64_t period, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= period * packs) return;
  const std::int64_t p = quotient(i, packs), step = period * packs;
  if (p >= rows) return;
  float sum[kWidth];
  Packed<float, kWidth> old;
  old.load(dtable + i * kWidth);
  old.unpack(sum);
  for (std::int64_t row = p, at = i; row < rows; row += kFlight * period, at += kFlight * step) {
    Packed<T, kWidth> in[kFlight];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      if (row + u * period < rows) in[u].load(dy + (at + u * step) * kWidth);
    }
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      if (row + u * period >= rows) continue;
      float v[kWidth];
      in[u].unpack(v);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += v[k];
    }
  }
  store_packed(dtable + i * kWidth, sum);
}

// Ids and the rows they came from; null rows: row i is i.
struct Pairs {
  std::int32_t* ids;
  std::int32_t* rows;
};

__device__ __forceinline__ int digit_of(std::int32_t id, int shift) {
  return static_cast<int>(static_cast<std::uint32_t>(id) >> shift) & (kDigits - 1);
}

// counts[tile, digit]. Integer additions in shared memory: their order does not matter.
__global__ void __launch_bounds__(kThreads)
    count_kernel(std::int32_t* counts, const std::int32_t* ids, std::int64_t n, int shift) {
  __shared__ int count[kDigits];
  count[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTile;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = begin + round * kThreads + threadIdx.x;
    if (i < n) atomicAdd(&count[digit_of(ids[i], shift)], 1);
  }
  __syncthreads();
  counts[std::int64_t{blockIdx.x} * kDigits + threadIdx.x] = count[threadIdx.x];
}

// The exclusive sum over the block's threads; `shared` holds one value a warp.
__device__ __forceinline__ int exclusive_sum(int value, int* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = value;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int before = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == kWarp - 1) shared[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w)
    sum += shared[w];
  return sum - value;
}

// Places one tile's pairs by one digit, stably: after all smaller digits, after the same digit in
// earlier tiles, warps and rounds, and in the order of the lanes. Each warp has kRounds runs of 32
// neighbours. Reads all counts (1 KiB a tile) and the tile's pairs once.
__global__ void __launch_bounds__(kThreads)
    place_kernel(Pairs to, Pairs from, const std::int32_t* counts, std::int64_t n, int shift) {
  __shared__ int next[kWarps][kDigits];  // counts of each warp, then where its next pair goes
  __shared__ int sums[kWarps];
  const int digit = static_cast<int>(threadIdx.x), lane = digit % kWarp, warp = digit / kWarp;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTile + warp * kWarp * kRounds;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    next[w][digit] = 0;
  __syncthreads();
  std::int32_t id[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = begin + round * kWarp + lane;
    id[round] = i < n ? from.ids[i] : 0;
    if (i < n) atomicAdd(&next[warp][digit_of(id[round], shift)], 1);
  }
  int earlier = 0, total = 0;
#pragma unroll 8
  for (unsigned tile = 0; tile < gridDim.x; ++tile) {
    const int count = counts[std::int64_t{tile} * kDigits + digit];
    earlier += tile < blockIdx.x ? count : 0;
    total += count;
  }
  int start = exclusive_sum(total, sums) + earlier;  // its barrier ends the counting
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int count = next[w][digit];
    next[w][digit] = start;
    start += count;
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = begin + round * kWarp + lane;
    const int mine = i < n ? digit_of(id[round], shift) : kDigits;  // of no digit
    const unsigned peers = __match_any_sync(~0u, mine);
    const int before = __popc(peers & ((1u << lane) - 1));
    int place = 0;
    if (mine < kDigits) place = next[warp][mine] + before;
    __syncwarp();
    if (mine < kDigits && before == 0) next[warp][mine] += __popc(peers);
    __syncwarp();
    if (mine == kDigits) continue;
    to.ids[place] = id[round];
    to.rows[place] = from.rows != nullptr ? from.rows[i] : static_cast<std::int32_t>(i);
  }
}

// The first sorted place of the id at `place`.
__device__ __forceinline__ std::int64_t list_start(const std::int32_t* ids, std::int64_t place) {
  const std::int32_t id = ids[place];
  std::int64_t low = 0, high = place;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (ids[middle] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Whether a list longer than one piece starts at `place`.
__device__ __forceinline__ bool starts_long_list(const std::int32_t* ids, std::int64_t place,
                                                 std::int64_t n) {
  return place + kPiece < n && ids[place + kPiece] == ids[place] &&
         (place == 0 || ids[place - 1] != ids[place]);
}

// Where the sum of the piece that starts at `place` of a long list lies: two slots for every
// kPiece places, since of those at most one starts a long list and at most one continues one.
__device__ __forceinline__ std::int64_t slot_of(std::int64_t place, bool first) {
  return place / kPiece * 2 + (first ? 1 : 0);
}

// A warp has kWindow sorted places (x) and one pack of columns a lane (y). It adds every piece that
// starts there, rows ascending: onto dtable if the id has no other, else into its slot. Reads dy
// once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    pieces_kernel(float* __restrict__ dtable, float* __restrict__ slots, const T* __restrict__ dy,
                  const Pairs sorted, std::int64_t n, std::int64_t cols) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t window = (std::int64_t{blockIdx.x} * kWarps + warp) * kWindow;
  const std::int64_t column = (std::int64_t{blockIdx.y} * kWarp + lane) * kWidth;
  const bool mine = column < cols;
  bool starts = false;
  if (lane < kWindow && window + lane < n) {
    const std::int64_t p = window + lane;
    starts = p == 0 || sorted.ids[p - 1] != sorted.ids[p];
    if (!starts && p >= kPiece && sorted.ids[p - kPiece] == sorted.ids[p])
      starts = (p - list_start(sorted.ids, p)) % kPiece == 0;
  }
  for (unsigned left = __ballot_sync(~0u, starts); left != 0; left &= left - 1) {
    const std::int64_t begin = window + __ffs(static_cast<int>(left)) - 1;
    const std::int32_t id = sorted.ids[begin];
    const bool first = begin == 0 || sorted.ids[begin - 1] != id;
    // The piece's rows, two a lane, and how many there are.
    std::int32_t row[2];
    int count = 0;
    bool more = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t p = begin + half * kWarp + lane;
      const bool belongs = p < n && sorted.ids[p] == id;
      row[half] = belongs ? sorted.rows[p] : 0;
      count += __popc(__ballot_sync(~0u, belongs));
    }
    if (count == kPiece) more = begin + kPiece < n && sorted.ids[begin + kPiece] == id;
    const bool alone = first && !more;
    float* const to = alone ? dtable + std::int64_t{id} * cols + column
                            : slots + slot_of(begin, first) * cols + column;
    float sum[kWidth] = {};
    if (alone && mine) {
      Packed<float, kWidth> old;
      old.load(to);
      old.unpack(sum);
    }
    for (int k = 0; k < count; k += kFlight) {
      Packed<T, kWidth> in[kFlight];
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        const std::int64_t r = __shfl_sync(~0u, k + u < kWarp ? row[0] : row[1], (k + u) % kWarp);
        if (mine && k + u < count) in[u].load(dy + r * cols + column);
      }
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        if (!mine || k + u >= count) continue;
        float v[kWidth];
        in[u].unpack(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          sum[i] += v[i];
      }
    }
    if (mine) store_packed(to, sum);
  }
}
static_assert(kPiece == 2 * kWarp, "a lane knows two rows of a piece");

// A warp has kPiece sorted places (x) and one pack of columns a lane (y). If a long list starts
// there it adds the list's slots, in order, onto dtable.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    long_lists_kernel(float* __restrict__ dtable, const float* __restrict__ slots,
                      const std::int32_t* __restrict__ ids, std::int64_t n, std::int64_t cols) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t window = (std::int64_t{blockIdx.x} * kWarps + warp) * kPiece;
  const std::int64_t column = (std::int64_t{blockIdx.y} * kWarp + lane) * kWidth;
  std::int64_t begin = -1;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t p = window + half * kWarp + lane;
    const unsigned found = __ballot_sync(~0u, p < n && starts_long_list(ids, p, n));
    if (found != 0) begin = window + half * kWarp + __ffs(static_cast<int>(found)) - 1;
  }
  if (begin < 0 || column >= cols) return;
  const std::int32_t id = ids[begin];
  std::int64_t low = begin, high = n;  // the list's end
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (ids[middle] <= id)
      low = middle + 1;
    else
      high = middle;
  }
  const std::int64_t end = low;
  float* const to = dtable + std::int64_t{id} * cols + column;
  float sum[kWidth];
  Packed<float, kWidth> old;
  old.load(to);
  old.unpack(sum);
  for (std::int64_t p = begin; p < end; p += kFlight * kPiece) {
    Packed<float, kWidth> in[kFlight];
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      const std::int64_t at = p + u * kPiece;
      if (at < end) in[u].load(slots + slot_of(at, at == begin) * cols + column);
    }
#pragma unroll
    for (int u = 0; u < kFlight; ++u) {
      if (p + u * kPiece >= end) continue;
      float v[kWidth];
      in[u].unpack(v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum[i] += v[i];
    }
  }
  store_packed(to, sum);
}

// Scratch memory of one backward, cut into pieces of whole 256 bytes.
struct Room {
  std::int32_t* counts;
  Pairs pairs[2];
  float* slots;

  Room(StreamRef stream, std::int64_t rows, std::int64_t cols) {
    const std::int64_t tiles = (rows + kTile - 1) / kTile, pieces = (rows + kPiece - 1) / kPiece;
    const auto whole = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const std::int64_t count_bytes = whole(tiles * kDigits * 4), list_bytes = whole(rows * 4);
    const std::int64_t bytes = count_bytes + 4 * list_bytes + 2 * pieces * cols * 4;
    char* at =
        static_cast<char*>(scratch(stream, static_cast<std::size_t>(bytes), "embedding_backward"));
    counts = reinterpret_cast<std::int32_t*>(at);
    at += count_bytes;
    for (Pairs& pair : pairs) {
      pair.ids = reinterpret_cast<std::int32_t*>(at);
      pair.rows = reinterpret_cast<std::int32_t*>(at + list_bytes);
      at += 2 * list_bytes;
    }
    slots = reinterpret_cast<float*>(at);
  }
};

// Radix sort of (id, row) by id, from the lowest digit up; ids are below `limit`.
Pairs sort_rows(StreamRef stream, const Room& room, std::int32_t* ids, std::int64_t rows,
                std::int64_t limit) {
  const unsigned tiles = blocks_for(rows, kTile);
  Pairs from{ids, nullptr};
  int pass = 0;
  for (int shift = 0; shift == 0 || (limit - 1) >> shift != 0; shift += kDigitBits, ++pass) {
    const Pairs to = room.pairs[pass % 2];
    count_kernel<<<tiles, kThreads, 0, stream_of(stream)>>>(room.counts, from.ids, rows, shift);
    check_launch("embedding_backward");
    place_kernel<<<tiles, kThreads, 0, stream_of(stream)>>>(to, from, room.counts, rows, shift);
    check_launch("embedding_backward");
    from = to;
  }
  return from;
}

template <int kWidth, class T>
void add_rows(StreamRef stream, float* dtable, const T* dy, const Pairs& sorted, float* slots,
              std::int64_t rows, std::int64_t cols) {
  const unsigned strips = blocks_for(cols, kWarp * kWidth);
  pieces_kernel<kWidth, T>
      <<<dim3(blocks_for(rows, kWarps * kWindow), strips), kThreads, 0, stream_of(stream)>>>(
          dtable, slots, dy, sorted, rows, cols);
  check_launch("embedding_backward");
  if (rows <= kPiece) return;  // no long list
  long_lists_kernel<kWidth>
      <<<dim3(blocks_for(rows, kWarps * kPiece), strips), kThreads, 0, stream_of(stream)>>>(
          dtable, slots, sorted.ids, rows, cols);
  check_launch("embedding_backward");
}

}  // namespace

void embedding_forward(StreamRef stream, const View& out, const View& ids, const View& table,
                       const View& positions_table, const View& positions, std::int64_t period) {
  const std::int64_t n = out.numel(), cols = out.cols();
  if (n == 0) return;
  for_float(out.dtype, "embedding", [&](auto zero) {
    using T = decltype(zero);
    const auto go = [&](int width, auto kernel) {
      kernel<<<blocks_for(n / width, kThreads * kForwardUnroll), kThreads, 0, stream_of(stream)>>>(
          out.ptr<T>(), ids.ptr<std::int32_t>(), table.ptr<T>(), positions_table.ptr<T>(),
          positions.ptr<std::int32_t>(), n / width, cols / width, period);
      check_launch("embedding");
    };
    if (is_packable(out, cols) && is_aligned(table.data) && is_aligned(positions_table.data))
      go(kVector, forward_kernel<kVector, T>);
    else
      go(1, forward_kernel<1, T>);
  });
}

void embedding_backward(StreamRef stream, const View& dtable, const View& ids, const View& dy,
                        std::int64_t period) {
  const std::int64_t rows = dy.rows(), cols = dy.cols();
  if (rows == 0 || cols == 0) return;
  const bool packed = is_packable(dy, cols) && is_aligned(dtable.data);
  float* const to = dtable.ptr<float>();
  for_float(dy.dtype, "embedding_backward", [&](auto zero) {
    using T = decltype(zero);
    if (!ids) {
      const std::int64_t packs = packed ? cols / kVector : cols;
      const unsigned blocks = blocks_for(period * packs, kThreads);
      if (packed) {
        periodic_kernel<kVector, T>
            <<<blocks, kThreads, 0, stream_of(stream)>>>(to, dy.ptr<T>(), rows, period, packs);
      } else {
        periodic_kernel<1, T>
            <<<blocks, kThreads, 0, stream_of(stream)>>>(to, dy.ptr<T>(), rows, period, packs);
      }
      check_launch("embedding_backward");
      return;
    }
    const Room room(stream, rows, cols);
    const Pairs sorted = sort_rows(stream, room, ids.ptr<std::int32_t>(), rows, dtable.rows());
    if (packed)
      add_rows<kVector>(stream, to, dy.ptr<T>(), sorted, room.slots, rows, cols);
    else
      add_rows<1>(stream, to, dy.ptr<T>(), sorted, room.slots, rows, cols);
  });
}

}  // namespace fovea::cuda
