#include "kernels/cuda/flash/general.cuh"

namespace fovea::cuda {

namespace {

constexpr int kRowThreads = 256;

// One thread a row: rows[0] = lse, +inf where the row sends no gradient; rows[1] = <dout, o> -
// dlse. Traffic: dout and o once.
template <class T>
__global__ __launch_bounds__(kRowThreads) void general_rows_kernel(
    const __grid_constant__ FlashCall call) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const std::int64_t heads = static_cast<std::int64_t>(call.batch) * call.heads;
  if (at >= heads * call.padded_queries) return;
  const std::int64_t head = at / call.padded_queries;
  const int row = static_cast<int>(at % call.padded_queries);
  const int b = static_cast<int>(head / call.heads), h = static_cast<int>(head % call.heads);
  const float infinity = __int_as_float(0x7f800000);
  float lse = infinity, delta = 0;
  if (row < call.queries && call.query_tokens.is_valid(b, row)) {
    const float found = call.lse[head * call.queries + row];
    if (found != -infinity) {
      lse = found;
      if (call.dlse != nullptr) delta = -call.dlse[head * call.queries + row];
      const T* dout = call.dout.at<const T>(b, h) + row * call.dout.row;
      const T* o = call.o.at<const T>(b, h) + row * call.o.row;
      for (int c = 0; call.dout.data != nullptr && c < call.value_width; ++c)
        delta = fmaf(to_float(dout[c]), to_float(o[c]), delta);
    }
  }
  call.rows[at] = lse;
  call.rows[heads * call.padded_queries + at] = delta;
}

// Probabilities as they met v, and d scores, of one pair of tiles.
template <class T, class Shape>
__device__ __forceinline__ void gradient_scores(const FlashCall& call, int b, int h,
                                                int first_query, int first_key, const float* q,
                                                const float* k, const float* dout, const float* v,
                                                float (&p)[Shape::kOwn][Shape::kOwn],
                                                float (&ds)[Shape::kOwn][Shape::kOwn]) {
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
  row_products<Shape>(p, q, k, (call.width + 3) / 4 * 4);
  row_products<Shape>(ds, dout, v, (call.value_width + 3) / 4 * 4);
  const std::int64_t head = static_cast<std::int64_t>(b) * call.heads + h;
  const float* rows = call.rows + head * call.padded_queries;
  const float* deltas =
      rows + static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
#pragma unroll
  for (int a = 0; a < Shape::kOwn; ++a) {
    const int i = first_query + ty + kGrid * a;
    const bool real = i < call.queries;
    const float lse = real ? rows[i] : __int_as_float(0x7f800000), delta = real ? deltas[i] : 0;
#pragma unroll
    for (int c = 0; c < Shape::kOwn; ++c) {
      const int j = first_key + tx + kGrid * c;
      const float probability = expf(score_of<T>(call, b, h, i, j, p[a][c]) - lse);
      const float keep = probability > 0 ? kept(call, b, h, i, j) : 1;
      ds[a][c] = probability * (ds[a][c] * keep - delta);
      p[a][c] = probability * keep;
    }
  }
}

template <class Shape>
__device__ __forceinline__ void put_scores(float* to, const float (&s)[Shape::kOwn][Shape::kOwn]) {
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
#pragma unroll
  for (int a = 0; a < Shape::kOwn; ++a) {
#pragma unroll
    for (int c = 0; c < Shape::kOwn; ++c)
      to[(ty + kGrid * a) * Shape::kScoreStride + tx + kGrid * c] = s[a][c];
  }
}

template <class Shape>
constexpr int kBackwardFloats = 4 * Shape::kTile + 2 * Shape::kScores;

// dK and dV of one key tile: the group's heads in order, their query tiles in order. Traffic: k, v,
// dk, dv once; q, dout once a key tile that they see.
template <class T, class Shape>
__global__ __launch_bounds__(kGeneralThreads) void general_keys_kernel(
    const __grid_constant__ FlashCall call) {
  constexpr int kOwn = Shape::kOwn, kRows = Shape::kRows;
  float* q = general_shared();
  float *k = q + Shape::kTile, *dout = k + Shape::kTile, *v = dout + Shape::kTile;
  float *p_tile = v + Shape::kTile, *ds_tile = p_tile + Shape::kScores;
  const int tiles = (call.keys + kRows - 1) / kRows;
  const int head = static_cast<int>(blockIdx.x) / tiles, b = head / call.kv_heads,
            kv = head % call.kv_heads;
  const int first_key = static_cast<int>(blockIdx.x) % tiles * kRows;
  load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens);
  load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens);
  Sums<Shape> dk, dv;
  for (int h = kv * call.group; h < (kv + 1) * call.group; ++h) {
    for (int first = 0; first < call.queries; first += kRows) {
      if (beyond_diagonal<Shape>(call, first, first_key)) continue;
      __syncthreads();
      load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens);
      load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                          call.query_tokens);
      __syncthreads();
      float p[kOwn][kOwn], ds[kOwn][kOwn];
      gradient_scores<T, Shape>(call, b, h, first, first_key, q, k, dout, v, p, ds);
      put_scores<Shape>(p_tile, p);
      put_scores<Shape>(ds_tile, ds);
      __syncthreads();
      dv.template add<true>(p_tile, dout);
      dk.template add<true>(ds_tile, q);
    }
  }
  float scale[kOwn], one[kOwn];
#pragma unroll
  for (int a = 0; a < kOwn; ++a)
    scale[a] = call.scale, one[a] = 1;
  dk.template store<T>(call.dk, b, kv, first_key, call.keys, call.width, scale);
  dv.template store<T>(call.dv, b, kv, first_key, call.keys, call.value_width, one);
}

// dQ of one query tile, key tiles in order. Traffic: q, dout, dq once; k, v once a query tile that
// sees them.
template <class T, class Shape>
__global__ __launch_bounds__(kGeneralThreads) void general_queries_kernel(
    const __grid_constant__ FlashCall call) {
  constexpr int kOwn = Shape::kOwn, kRows = Shape::kRows;
  float* q = general_shared();
  float *k = q + Shape::kTile, *dout = k + Shape::kTile, *v = dout + Shape::kTile;
  float* ds_tile = v + Shape::kTile;
  const int tiles = (call.queries + kRows - 1) / kRows;
  const int head = static_cast<int>(blockIdx.x) / tiles, b = head / call.heads,
            h = head % call.heads, kv = h / call.group;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kRows;
  load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens);
  load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                      call.query_tokens);
  Sums<Shape> dq;
  for (int first_key = 0; first_key < call.keys; first_key += kRows) {
    if (beyond_diagonal<Shape>(call, first, first_key)) break;
    __syncthreads();
    load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens);
    load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens);
    __syncthreads();
    float p[kOwn][kOwn], ds[kOwn][kOwn];
    gradient_scores<T, Shape>(call, b, h, first, first_key, q, k, dout, v, p, ds);
    put_scores<Shape>(ds_tile, ds);
    __syncthreads();
    dq.template add<false>(ds_tile, k);
  }
  float scale[kOwn];
#pragma unroll
  for (int a = 0; a < kOwn; ++a)
    scale[a] = call.scale;
  dq.template store<T>(call.dq, b, h, first, call.queries, call.width, scale);
}

// dbias of one pair of tiles: scores are made once more, for every sample and head that shares the
// bias, samples outside. Traffic: q, k, v, dout once a pair of tiles; dbias once.
template <class T, class Shape>
__global__ __launch_bounds__(kGeneralThreads) void general_bias_kernel(
    const __grid_constant__ FlashCall call) {
  constexpr int kOwn = Shape::kOwn, kRows = Shape::kRows;
  float* q = general_shared();
  float *k = q + Shape::kTile, *dout = k + Shape::kTile, *v = dout + Shape::kTile;
  const int query_tiles = (call.queries + kRows - 1) / kRows,
            key_tiles = (call.keys + kRows - 1) / kRows;
  std::int64_t at = blockIdx.x;
  const int first_key = static_cast<int>(at % key_tiles) * kRows;
  at /= key_tiles;
  const int first = static_cast<int>(at % query_tiles) * kRows;
  const std::int64_t plane = at / query_tiles;
  const int bias_b = static_cast<int>(plane / call.bias_heads),
            bias_h = static_cast<int>(plane % call.bias_heads);
  const int b_end = call.bias_batch == 1 ? call.batch : bias_b + 1;
  const int h_end = call.bias_heads == 1 ? call.heads : bias_h + 1;
  float sum[kOwn][kOwn] = {};
  for (int b = bias_b; b < b_end && !beyond_diagonal<Shape>(call, first, first_key); ++b) {
    for (int h = bias_h; h < h_end; ++h) {
      const int kv = h / call.group;
      __syncthreads();
      load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens);
      load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                          call.query_tokens);
      load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens);
      load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width,
                          call.key_tokens);
      __syncthreads();
      float p[kOwn][kOwn], ds[kOwn][kOwn];
      gradient_scores<T, Shape>(call, b, h, first, first_key, q, k, dout, v, p, ds);
#pragma unroll
      for (int a = 0; a < kOwn; ++a) {
#pragma unroll
        for (int c = 0; c < kOwn; ++c)
          sum[a][c] += ds[a][c];
      }
    }
  }
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
#pragma unroll
  for (int a = 0; a < kOwn; ++a) {
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int i = first + ty + kGrid * a, j = first_key + tx + kGrid * c;
      if (i < call.queries && j < call.keys)
        call.dbias[(plane * call.queries + i) * call.keys + j] = sum[a][c];
    }
  }
}

}  // namespace

void flash_backward_general(StreamRef stream, const FlashCall& call, DType dtype) {
  constexpr const char* kName = "flash_backward";
  for_float(dtype, kName, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows =
        static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
    if (rows > 0) {
      general_rows_kernel<T>
          <<<blocks_for(rows, kRowThreads), kRowThreads, 0, stream_of(stream)>>>(call);
      check_launch(kName);
    }
    for_width(call, [&](auto shape) {
      using Shape = decltype(shape);
      const std::int64_t key_tiles = tiles_of(call.keys, Shape::kRows),
                         query_tiles = tiles_of(call.queries, Shape::kRows);
      if (call.dk.data != nullptr || call.dv.data != nullptr)
        launch_general(stream, general_keys_kernel<T, Shape>,
                       key_tiles * call.batch * call.kv_heads, kBackwardFloats<Shape>, call, kName);
      if (call.dq.data != nullptr)
        launch_general(stream, general_queries_kernel<T, Shape>,
                       query_tiles * call.batch * call.heads, kBackwardFloats<Shape>, call, kName);
      if (call.dbias != nullptr)
        launch_general(stream, general_bias_kernel<T, Shape>,
                       key_tiles * query_tiles * call.bias_batch * call.bias_heads,
                       kBackwardFloats<Shape>, call, kName);
    });
  });
}

}  // namespace fovea::cuda
