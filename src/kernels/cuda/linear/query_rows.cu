// What the backward pass knows of every query before it starts.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kRowWarps = 8;

// delta, rho and rest of a query, a warp each. Reads dout, o and its rounding once.
template <class T>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    query_rows_kernel(const __grid_constant__ LinearCall call) {
  const std::int64_t row =
      std::int64_t{blockIdx.x} * kRowWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= std::int64_t{call.batch} * call.heads * call.queries) return;
  const int token = static_cast<int>(row % call.queries);
  const std::int64_t head = row / call.queries;
  const int b = static_cast<int>(head / call.heads), h = static_cast<int>(head % call.heads);
  float sum = 0;
  const bool valid = call.query_tokens.is_valid(b, token);
  if (valid) {
    const T* dout = call.dout.at<const T>(b, h) + token * call.dout.row;
    const T* o = call.o.at<const T>(b, h) + token * call.o.row;
    const T* rest = call.rounding.data == nullptr
                        ? nullptr
                        : call.rounding.at<const T>(b, h) + token * call.rounding.row;
    for (int c = lane; c < call.values; c += kWarp) {
      const float whole = to_float(o[c]) + (rest == nullptr ? 0.0f : to_float(rest[c]));
      sum = fmaf(to_float(dout[c]), whole, sum);
    }
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
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
    const std::int64_t rows = std::int64_t{call.batch} * call.heads * call.queries;
    query_rows_kernel<T>
        <<<blocks_for(rows, kRowWarps), kRowWarps * kWarp, 0, stream_of(stream)>>>(call);
    check_launch("linear_attention query rows");
  });
}

}  // namespace fovea::cuda
