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
  const int token = row < call.queries ? token_at(call.plan.query_order(b, h), row) : row;
  float lse = infinity, delta = 0;
  if (row < call.queries && call.query_tokens.is_valid(b, token)) {
    const float found = call.lse[head * call.queries + token];
    if (found != -infinity) {
      lse = found;
      if (call.dlse != nullptr) delta = -call.dlse[head * call.queries + token];
      const T* dout = call.dout.at<const T>(b, h) + token * call.dout.row;
      const T* o = call.o.at<const T>(b, h) + token * call.o.row;
      for (int c = 0; call.dout.data != nullptr && c < call.value_width; ++c)
        delta = fmaf(to_float(dout[c]), to_float(o[c]), delta);
    }
  }
  call.rows[at] = lse;
  call.rows[heads * call.padded_queries + at] = delta;
}

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
  const std::int32_t* key_order = call.plan.key_order(b, kv);
  load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens,
                      key_order, call.plan.key_end(b, kv * call.group, call.group));
  load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens,
                      key_order, call.plan.key_end(b, kv * call.group, call.group));
  Sums<Shape> dk, dv;
  for (int h = kv * call.group; h < (kv + 1) * call.group; ++h) {
    const std::int32_t* query_order = call.plan.query_order(b, h);
    for (int first = 0; first < call.queries; first += kRows) {
      const unsigned state = state_of<Shape>(call, b, h, first, first_key);
      if (state == kUnseen) continue;
      __syncthreads();
      load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens,
                          query_order, call.plan.query_end(b, h));
      load_rows<T, Shape>(dout, call.dout, b, h, first, call.queries, call.value_width,
                          call.query_tokens, query_order, call.plan.query_end(b, h));
      __syncthreads();
      float p[kOwn][kOwn], ds[kOwn][kOwn];
      gradient_scores<T, Shape, true>(call, b, h, first, first_key, q, k, dout, v, state, p, ds);
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
  dk.template store<T>(call.dk, b, kv, first_key, call.keys, call.width, scale, key_order);
  dv.template store<T>(call.dv, b, kv, first_key, call.keys, call.value_width, one, key_order);
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
      const std::int64_t key_tiles = tiles_of(call.keys, Shape::kRows);
      if (call.dk.data != nullptr || call.dv.data != nullptr)
        launch_general(stream, general_keys_kernel<T, Shape>,
                       key_tiles * call.batch * call.kv_heads, kBackwardFloats<Shape>, call, kName);
    });
  });
  flash_backward_general_queries(stream, call, dtype);
}

}  // namespace fovea::cuda
