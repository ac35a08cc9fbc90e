#include "kernels/cuda/flash/general.cuh"

namespace fovea::cuda {

namespace {

template <class Shape>
constexpr int kForwardFloats = 3 * Shape::kTile + Shape::kScores;

// One block a query tile. Traffic: q, o once; k, v once a query tile that sees them.
template <class T, class Shape>
__global__ __launch_bounds__(kGeneralThreads) void general_forward_kernel(
    const __grid_constant__ FlashCall call) {
  constexpr int kOwn = Shape::kOwn, kRows = Shape::kRows;
  float* q = general_shared();
  float *k = q + Shape::kTile, *v = k + Shape::kTile, *p = v + Shape::kTile;
  const int tiles = (call.queries + kRows - 1) / kRows;
  const int head = static_cast<int>(blockIdx.x) / tiles, b = head / call.heads,
            h = head % call.heads, kv = h / call.group;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kRows;
  const int tx = static_cast<int>(threadIdx.x) % kGrid, ty = static_cast<int>(threadIdx.x) / kGrid;
  const int padded = (call.width + 3) / 4 * 4;
  const float none = __int_as_float(0xff800000);

  float top[kOwn], mass[kOwn];
#pragma unroll
  for (int a = 0; a < kOwn; ++a)
    top[a] = none, mass[a] = 0;
  Sums<Shape> o;
  const std::int32_t *query_order = call.plan.query_order(b, h),
                     *key_order = call.plan.key_order(b, kv);
  load_rows<T, Shape>(q, call.q, b, h, first, call.queries, call.width, call.query_tokens,
                      query_order, call.plan.query_end(b, h));
  for (int first_key = 0; first_key < call.keys; first_key += kRows) {
    const unsigned state = state_of<Shape>(call, b, h, first, first_key);
    if (state == kUnseen) continue;
    __syncthreads();
    load_rows<T, Shape>(k, call.k, b, kv, first_key, call.keys, call.width, call.key_tokens,
                        key_order, call.plan.key_end(b, h));
    load_rows<T, Shape>(v, call.v, b, kv, first_key, call.keys, call.value_width, call.key_tokens,
                        key_order, call.plan.key_end(b, h));
    __syncthreads();
    float s[kOwn][kOwn];
    row_products<Shape>(s, q, k, padded);
#pragma unroll
    for (int a = 0; a < kOwn; ++a) {
      const int i = first + ty + kGrid * a;
      const QueryRow query(call, b, h, i, first_key, state);
      float highest = top[a];
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
        s[a][c] = score_of<T>(call, b, h, i, query, first_key + tx + kGrid * c, s[a][c]);
        highest = fmaxf(highest, s[a][c]);
      }
      highest = warp_max<kGrid>(highest);
      const float base = highest == none ? 0 : highest;  // a row that saw nothing yet
      const float shrink = expf(top[a] - base);
      float sum = 0;
#pragma unroll
      for (int c = 0; c < kOwn; ++c) {
        const int j = first_key + tx + kGrid * c;
        const float probability = expf(s[a][c] - base);
        sum += probability;
        p[(ty + kGrid * a) * Shape::kScoreStride + tx + kGrid * c] =
            probability > 0 ? probability * kept(call, b, h, query.token, j) : probability;
      }
      sum = warp_sum<kGrid>(sum);
      mass[a] = fmaf(mass[a], shrink, sum);
      top[a] = highest;
#pragma unroll
      for (int n = 0; n < Shape::kVectors; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          o.at[a][n][e] *= shrink;
      }
    }
    __syncthreads();
    o.template add<false>(p, v);
  }
  float inverse[kOwn];
#pragma unroll
  for (int a = 0; a < kOwn; ++a) {
    const int i = first + ty + kGrid * a;
    const bool any = mass[a] != 0;
    inverse[a] = any ? 1 / mass[a] : 1;  // o is 0 there
    if (tx == 0 && i < call.queries)
      call.lse[static_cast<std::int64_t>(head) * call.queries + token_at(query_order, i)] =
          any ? top[a] + logf(mass[a]) : none;
  }
  o.template store<T>(call.o, b, h, first, call.queries, call.value_width, inverse, query_order);
}

}  // namespace

void flash_forward_general(StreamRef stream, const FlashCall& call, DType dtype) {
  for_float(dtype, "flash_forward", [&](auto zero) {
    using T = decltype(zero);
    for_width(call, [&](auto shape) {
      using Shape = decltype(shape);
      launch_general(stream, general_forward_kernel<T, Shape>,
                     std::int64_t{call.batch} * call.heads * tiles_of(call.queries, Shape::kRows),
                     kForwardFloats<Shape>, call, "flash_forward");
    });
  });
}

}  // namespace fovea::cuda
