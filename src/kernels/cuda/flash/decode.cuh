#pragma once
// The forward kernel for few queries against many keys: keys are split between blocks, and between
// the four warps of a block, and the parts meet in a fixed order.
//
// All query heads of a group times all queries are the rows of one product, 16 at a time, so that a
// key is read once for the whole group. A warp walks every fourth chunk of keys of its block with
// its own cp.async pipeline: no barrier until the end. A chunk's chain of instructions is long, so
// what counts is how many warps a multiprocessor has room for: few stages, several blocks. Traffic:
// k, v once for 16 rows; partial results, (value width + 2) floats a row and split, twice.

#include "kernels/cuda/flash/softmax.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

constexpr int kDecodeRows = 16, kDecodeWarps = kFlashThreads / 32;

// kChunk: keys at once, a multiple of 16. kStages: chunks of a warp in shared memory. kBlocks: of a
// multiprocessor.
template <int kWidth_, int kValueWidth_, int kChunk_, int kStages_, int kBlocks_>
struct DecodeShape {
  static constexpr int kWidth = kWidth_, kValueWidth = kValueWidth_;
  static constexpr int kChunk = kChunk_, kStages = kStages_, kBlocks = kBlocks_;
  static constexpr unsigned kKeyBytes = kChunk * kWidth * 2;
  static constexpr unsigned kStageBytes = kKeyBytes + kChunk * kValueWidth * 2;
  static constexpr unsigned kWarpBytes = kStages * kStageBytes;
  // Floats between rows of a warp's results: rows of a quad's lanes lie in different banks.
  static constexpr int kResultStride = kValueWidth + 8;
  static constexpr unsigned kResultBytes = kDecodeRows * (kResultStride + 2) * sizeof(float);
  static constexpr unsigned kBytes =
      kDecodeWarps * (kWarpBytes > kResultBytes ? kWarpBytes : kResultBytes) + 1024;
};

// Row r of a key head: query head kv group + r / N, query r % N.
struct DecodeRow {
  int head, query;
  __device__ __forceinline__ DecodeRow(const FlashCall& call, int kv, int r)
      : head(kv * call.group + r / call.queries), query(r % call.queries) {}
};

// The chunks of one part of the keys, and the rows of one block.
template <class T, class Shape>
__global__ __launch_bounds__(kFlashThreads, Shape::kBlocks) void flash_decode_kernel(
    const __grid_constant__ FlashCall call, const FlashSplit split) {
  constexpr int kWidth = Shape::kWidth, kValueWidth = Shape::kValueWidth;
  constexpr int kSteps = kWidth / 16, kStages = Shape::kStages;
  constexpr int kChunk = Shape::kChunk, kColumns = kChunk / 8;
  using Tile = Swizzled<kWidth>;
  using ValueTile = Swizzled<kValueWidth>;
  const unsigned base = tile_base();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  int at = static_cast<int>(blockIdx.x);
  const int part = at % split.parts;
  at /= split.parts;
  const int row_tile = at % split.row_tiles;
  at /= split.row_tiles;
  const int kv = at % call.kv_heads, b = at / call.kv_heads;
  const int rows = call.group * call.queries, first_row = row_tile * kDecodeRows;
  const int begin = part * split.keys_a_part;
  const int end = min(call.keys, begin + split.keys_a_part);
  const T* keys = call.k.at<const T>(b, kv);
  const T* values = call.v.at<const T>(b, kv);
  const bool marked = call.marked();
  const float none = __int_as_float(0xff800000);

  // The queries as operands, straight from global memory.
  unsigned q[1][kSteps][4];
  int last[2], segment[2];  // of the lane's two rows: the last key they may see
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const DecodeRow place(call, kv, row < rows ? row : 0);
    bool exists = row < rows;
    if (marked) exists = exists && call.query_tokens.is_valid(b, place.query);
    segment[r] = exists ? call.query_tokens.segment(b, place.query) : 0;
    last[r] = !exists ? -1 : call.causal ? place.query + call.offset : call.keys - 1;
    const T* from = call.q.at<const T>(b, place.head) + place.query * call.q.row + lane % 4 * 2;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int column = 16 * step + 8 * side;
        q[0][step][2 * side + r] =
            exists && column < call.width ? *reinterpret_cast<const unsigned*>(from + column) : 0;
      }
    }
  }

  const unsigned mine = base + static_cast<unsigned>(warp) * Shape::kWarpBytes;
  const auto fetch = [&](int first, int stage) {
    const unsigned to = mine + static_cast<unsigned>(stage) * Shape::kStageBytes;
    load_rows_of_warp<T, kWidth, kChunk>(to, keys, call.k.row, first, end, call.width,
                                         call.key_tokens, b);
    load_rows_of_warp<T, kValueWidth, kChunk>(to + Shape::kKeyBytes, values, call.v.row, first, end,
                                              call.value_width, call.key_tokens, b);
  };
  constexpr int kStride = kDecodeWarps * kChunk;
  int ahead = begin + warp * kChunk, stage_ahead = 0;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (ahead < end) fetch(ahead, i);
    commit_copies();
    ahead += kStride, ++stage_ahead;
  }

  float o[1][kValueWidth / 8][4] = {};
  RunningSoftmax<1> softmax;
  const float scale = call.scale * kLog2E;
  int stage = 0;
  for (int first = begin + warp * kChunk; first < end; first += kStride) {
    wait_copies<kStages - 2>();
    __syncwarp();  // all lanes' copies are there, and nobody needs the stage before any more
    if (ahead < end) fetch(ahead, stage_ahead);
    commit_copies();
    ahead += kStride;
    if (++stage_ahead == kStages) stage_ahead = 0;
    const unsigned tile = mine + static_cast<unsigned>(stage) * Shape::kStageBytes;
    if (++stage == kStages) stage = 0;

    float s[1][kColumns][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kChunk / 16; ++i) {
        unsigned k[4];
        ldmatrix(k, Tile::block(tile + Tile::lane_by_columns(lane), i, step));
        mma<T>(s[0][2 * i], q[0][step], k[0], k[1]);
        mma<T>(s[0][2 * i + 1], q[0][step], k[2], k[3]);
      }
    }
    // Rows that do not exist may see anything.
    if (marked || first + kChunk > end || (call.causal && first + kChunk - 1 > call.offset)) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = first + 8 * n + lane % 4 * 2 + e;
          bool exists = key < end;
          int of = 0;
          if (marked && exists) {
            exists = call.key_tokens.is_valid(b, key);
            of = call.key_tokens.segment(b, key);
          }
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            if (!exists || key > last[r] || of != segment[r]) s[0][n][2 * r + e] = none;
          }
        }
      }
    }
    float shrink[1][2];
    if (softmax.advance(s, scale, shrink)) {
#pragma unroll
      for (int n = 0; n < kValueWidth / 8; ++n) {
        o[0][n][0] *= shrink[0][0], o[0][n][1] *= shrink[0][0];
        o[0][n][2] *= shrink[0][1], o[0][n][3] *= shrink[0][1];
      }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[0][n][e] = exp2_fast(fmaf(s[0][n][e], scale, -softmax.base(0, e / 2)));
        softmax.sum[0][e / 2] += s[0][n][e];
      }
    }
    const unsigned lane_values = tile + Shape::kKeyBytes + ValueTile::lane_by_rows(lane);
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
      unsigned p[4];
      as_operand<T>(p, s[0][2 * i], s[0][2 * i + 1]);
#pragma unroll
      for (int n = 0; n < kValueWidth / 16; ++n) {
        unsigned v[4];
        ldmatrix_transposed(v, ValueTile::block(lane_values, i, n));
        mma<T>(o[0][2 * n], p, v[0], v[1]);
        mma<T>(o[0][2 * n + 1], p, v[2], v[3]);
      }
    }
  }

  // The warps' results meet: [warp][row][value width + padding], then references, then sums.
  wait_copies<0>();
  __syncthreads();
  constexpr int kResultStride = Shape::kResultStride;
  float* results = shared_pointer<float>(base);
  float* references = results + kDecodeWarps * kDecodeRows * kResultStride;
  float* sums = references + kDecodeWarps * kDecodeRows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(softmax.sum[0][r]);
    const int row = warp * kDecodeRows + lane / 4 + 8 * r;
    if (lane % 4 == 0) references[row] = softmax.reference[0][r], sums[row] = sum;
#pragma unroll
    for (int n = 0; n < kValueWidth / 8; ++n)
      *reinterpret_cast<float2*>(results + row * kResultStride + 8 * n + lane % 4 * 2) =
          make_float2(o[0][n][2 * r], o[0][n][2 * r + 1]);
  }
  __syncthreads();
  // Eight threads a row.
  const int row = static_cast<int>(threadIdx.x) / 8, r = first_row + row;
  if (r >= rows) return;
  float top = none, sum = 0, weight[kDecodeWarps];
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w)
    top = fmaxf(top, references[w * kDecodeRows + row]);
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    const float reference = references[w * kDecodeRows + row];
    weight[w] = reference == none ? 0 : exp2_fast(reference - top);
    sum = fmaf(weight[w], sums[w * kDecodeRows + row], sum);
  }
  const DecodeRow place(call, kv, r);
  const std::int64_t of_row =
      (static_cast<std::int64_t>(b) * call.heads + place.head) * call.queries + place.query;
  const bool last_step = split.parts == 1;
  const float multiplier = !last_step ? 1 : sum != 0 ? 1 / sum : 0;
  float* partial = split.partial + (of_row * split.parts + part) * (call.value_width + 2);
  T* out = call.o.at<T>(b, place.head) + place.query * call.o.row;
  for (int c = static_cast<int>(threadIdx.x) % 8; c < call.value_width; c += 8) {
    float value = 0;
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w)
      value = fmaf(weight[w], results[(w * kDecodeRows + row) * kResultStride + c], value);
    if (last_step)
      out[c] = from_float<T>(value * multiplier);
    else
      partial[c] = value;
  }
  if (threadIdx.x % 8 != 0) return;
  if (last_step) {
    call.lse[of_row] = sum != 0 ? (top + log2f(sum)) * kLn2 : none;
  } else {
    partial[call.value_width] = top;
    partial[call.value_width + 1] = sum;
  }
}

constexpr int kCombineColumns = 256 / 32;  // of a lane

// Adds the parts of a row in ascending order. One warp a row, a lane weighs every 32nd part.
// Traffic: the partial results once.
template <class T>
__global__ __launch_bounds__(kFlashThreads) void flash_combine_kernel(
    const __grid_constant__ FlashCall call, const FlashSplit split) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kDecodeWarps + threadIdx.x / 32;
  if (row >= static_cast<std::int64_t>(call.batch) * call.heads * call.queries) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, stride = call.value_width + 2;
  const float none = __int_as_float(0xff800000);
  const float* parts = split.partial + row * split.parts * stride;
  float top = none;
  for (int p = lane; p < split.parts; p += 32)
    top = fmaxf(top, parts[p * stride + call.value_width]);
  top = warp_max(top);
  float sum = 0, values[kCombineColumns] = {};
  for (int first = 0; first < split.parts; first += 32) {
    float weight = 0, mass = 0;
    if (first + lane < split.parts) {
      const float* part = parts + (first + lane) * stride + call.value_width;
      weight = part[0] == none ? 0 : exp2_fast(part[0] - top), mass = part[1];
    }
    const int here = min(32, split.parts - first);
#pragma unroll 4
    for (int p = 0; p < here; ++p) {
      const float w = __shfl_sync(~0u, weight, p);
      sum = fmaf(w, __shfl_sync(~0u, mass, p), sum);
      const float* part = parts + (first + p) * stride;
#pragma unroll
      for (int i = 0; i < kCombineColumns; ++i) {
        if (lane + 32 * i < call.value_width) values[i] = fmaf(w, part[lane + 32 * i], values[i]);
      }
    }
  }
  const std::int64_t head = row / call.queries;
  const int query = static_cast<int>(row % call.queries);
  T* out = call.o.at<T>(static_cast<int>(head / call.heads), static_cast<int>(head % call.heads)) +
           query * call.o.row;
#pragma unroll
  for (int i = 0; i < kCombineColumns; ++i) {
    if (lane + 32 * i < call.value_width)
      out[lane + 32 * i] = from_float<T>(sum != 0 ? values[i] / sum : 0);
  }
  if (lane == 0) call.lse[row] = sum != 0 ? (top + log2f(sum)) * kLn2 : none;
}

template <class T, class Shape>
void launch_decode(StreamRef stream, const FlashCall& call, const FlashSplit& split) {
  const int blocks = call.batch * call.kv_heads * split.row_tiles * split.parts;
  launch_shared(stream, "flash_forward", flash_decode_kernel<T, Shape>,
                static_cast<unsigned>(blocks), kFlashThreads, Shape::kBytes, call, split);
  if (split.parts == 1) return;
  const std::int64_t rows = static_cast<std::int64_t>(call.batch) * call.heads * call.queries;
  flash_combine_kernel<T>
      <<<blocks_for(rows, kDecodeWarps), kFlashThreads, 0, stream_of(stream)>>>(call, split);
  check_launch("flash_forward");
}

template <class Shape>
void launch_decode(StreamRef stream, const FlashCall& call, const FlashSplit& split, DType dtype) {
  if (dtype == DType::bf16)
    launch_decode<bf16, Shape>(stream, call, split);
  else
    launch_decode<f16, Shape>(stream, call, split);
}

}  // namespace fovea::cuda
