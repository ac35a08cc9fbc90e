// What the backward pass knows of every query before it starts.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kRowThreads = 256;
constexpr int kRowLanes = 8;  // a query, eight values a lane
constexpr int kRowTokens = 8, kRowHeads = kRowThreads / kRowLanes / kRowTokens;  // of a block

template <class T>
__device__ __forceinline__ void load_values(float (&to)[8], const T* from, int c,
                                            const TileRows& rows) {
  if (rows.packed) return load8(to, from + c);
#pragma unroll
  for (int e = 0; e < 8; ++e)
    to[e] = c + e < rows.width ? to_float(from[c + e]) : 0.0f;
}

// delta, rho and rest of queries. Reads dout, o and its rounding once: neighbouring heads lie side
// by side in memory.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    query_rows_kernel(const __grid_constant__ LinearCall call) {
  const int slot = static_cast<int>(threadIdx.x) / kRowLanes,
            lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int parts = (call.heads + kRowHeads - 1) / kRowHeads;
  const int h = static_cast<int>(blockIdx.x) % parts * kRowHeads + slot % kRowHeads,
            token = static_cast<int>(blockIdx.x) / parts * kRowTokens + slot / kRowHeads,
            b = static_cast<int>(blockIdx.y);
  const bool exists = h < call.heads && token < call.queries;
  const bool valid = exists && call.query_tokens.is_valid(b, token);
  float sum = 0;
  if (valid) {
    const T* dout = call.dout.at<const T>(b, h) + token * call.dout.row;
    const T* o = call.o.at<const T>(b, h) + token * call.o.row;
    for (int c = lane * 8; c < call.values; c += kRowLanes * 8) {
      float whole[8], by[8];
      load_values(whole, o, c, call.o);
      load_values(by, dout, c, call.dout);
      if (call.rounding.data != nullptr) {
        float rest[8];
        load_values(rest, call.rounding.at<const T>(b, h) + token * call.rounding.row, c,
                    call.rounding);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          whole[e] += rest[e];
      }
#pragma unroll
      for (int e = 0; e < 8; ++e)
        sum = fmaf(by[e], whole[e], sum);
    }
  }
  sum = warp_sum<kRowLanes>(sum);
  if (lane != 0 || !exists) return;
  const std::int64_t row = call.row_of(b, h) + token;
  const float den = call.den[row];
  const bool clamped = call.normaliser == Normaliser::clamp && den < call.floor;
  const bool divided = !clamped && call.normaliser != Normaliser::sqrt_n;
  const float dlse = call.dlse != nullptr && valid ? call.dlse[row] : 0.0f;
  call.rows.delta[row] = divided ? sum - dlse : 0.0f;
  call.rows.rho[row] = valid ? 1.0f / (clamped ? call.floor : den) : 0.0f;
  if (!divided)
    call.rows.rest[row] = sum;
  else
    call.rows.rest[row] =
        dlse + (call.normaliser == Normaliser::add ? (sum - dlse) * (call.floor / den) : 0.0f);
}

}  // namespace

void linear_query_rows(StreamRef stream, DType dtype, const LinearCall& call) {
  for_float(dtype, "linear_attention", [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(blocks_for(call.queries, kRowTokens) * blocks_for(call.heads, kRowHeads),
                    static_cast<unsigned>(call.batch));
    query_rows_kernel<T><<<grid, kRowThreads, 0, stream_of(stream)>>>(call);
    check_launch("linear_attention query rows");
  });
}

}  // namespace fovea::cuda
