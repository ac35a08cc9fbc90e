#include "kernels/cuda/flash/general.cuh"

namespace fovea::cuda {

namespace {

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
  const std::int32_t *query_order = call.plan.query_order(b, h),
                     *key_order = call.plan.key_order(b, kv);
  load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens,
                      query_order, call.plan.query_end(b, h));
  load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                      call.query_tokens, query_order, call.plan.query_end(b, h));
  Sums<Shape> dq;
  for (int first_key = 0; first_key < call.keys; first_key += kRows) {
    const unsigned state = state_of<Shape>(call, b, h, first, first_key);
    if (state == kUnseen) continue;
    __syncthreads();
    load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens,
                        key_order, call.plan.key_end(b, h));
    load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens,
                        key_order, call.plan.key_end(b, h));
    __syncthreads();
    float p[kOwn][kOwn], ds[kOwn][kOwn];
    gradient_scores<T, Shape, true>(call, b, h, first, first_key, q, k, dout, v, state, p, ds);
    put_scores<Shape>(ds_tile, ds);
    __syncthreads();
    dq.template add<false>(ds_tile, k);
  }
  float scale[kOwn];
#pragma unroll
  for (int a = 0; a < kOwn; ++a)
    scale[a] = call.scale;
  dq.template store<T>(call.dq, b, h, first, call.queries, call.width, scale, query_order);
}

// dbias of one pair of tiles: scores are made once more, for every sample and head that shares the
// bias, samples outside. Slots are tokens here. Traffic: q, k, v, dout once a pair of tiles; dbias
// once.
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
  for (int b = bias_b; b < b_end; ++b) {
    for (int h = bias_h; h < h_end; ++h) {
      const int kv = h / call.group;
      const unsigned state = state_of<Shape>(call, b, h, first, first_key);
      if (state == kUnseen) continue;
      __syncthreads();
      load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens,
                          nullptr, call.plan.query_end(b, h));
      load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                          call.query_tokens, nullptr, call.plan.query_end(b, h));
      load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens,
                          nullptr, call.plan.key_end(b, h));
      load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens,
                          nullptr, call.plan.key_end(b, h));
      __syncthreads();
      float p[kOwn][kOwn], ds[kOwn][kOwn];
      gradient_scores<T, Shape, false>(call, b, h, first, first_key, q, k, dout, v, state, p, ds);
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

void flash_backward_general_queries(StreamRef stream, const FlashCall& call, DType dtype) {
  constexpr const char* kName = "flash_backward";
  for_float(dtype, kName, [&](auto zero) {
    using T = decltype(zero);
    for_width(call, [&](auto shape) {
      using Shape = decltype(shape);
      const std::int64_t key_tiles = tiles_of(call.keys, Shape::kRows),
                         query_tiles = tiles_of(call.queries, Shape::kRows);
      if (call.dq.data != nullptr)
        launch_general(stream, general_queries_kernel<T, Shape>,
                       query_tiles * call.batch * call.heads, kBackwardFloats<Shape>, call, kName);
      if (call.dbias != nullptr &&
          (call.plan.sight.query_order.at != nullptr || call.plan.sight.key_order.at != nullptr))
        refuse(kName, "the gradient of a bias under an order of tokens");
      if (call.dbias != nullptr)
        launch_general(stream, general_bias_kernel<T, Shape>,
                       key_tiles * query_tiles * call.bias_batch * call.bias_heads,
                       kBackwardFloats<Shape>, call, kName);
    });
  });
}

}  // namespace fovea::cuda
