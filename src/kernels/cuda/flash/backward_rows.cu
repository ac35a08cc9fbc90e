#include "kernels/cuda/flash/call.cuh"
#include "kernels/cuda/tile/copy.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256, kLanesARow = 8;

// Eight lanes a row, eight values a lane and turn. Traffic: dout and o once.
template <class T>
__global__ __launch_bounds__(kThreads) void rows_kernel(const __grid_constant__ FlashCall call) {
  const int lane = static_cast<int>(threadIdx.x) % kLanesARow;
  const std::int64_t at =
      std::int64_t{blockIdx.x} * (kThreads / kLanesARow) + threadIdx.x / kLanesARow;
  const int row = static_cast<int>(at % call.padded_queries);
  const std::int64_t head = at / call.padded_queries;
  const std::int64_t heads = static_cast<std::int64_t>(call.batch) * call.heads;
  if (head >= heads) return;  // whole groups of eight lanes leave together
  const int b = static_cast<int>(head / call.heads), h = static_cast<int>(head % call.heads);
  const float none = __int_as_float(0xff800000);
  const int token = row < call.queries ? token_at(call.plan.query_order(b, h), row) : row;
  float lse = none, sum = 0;
  if (row < call.queries && call.query_tokens.is_valid(b, token))
    lse = call.lse[head * call.queries + token];
  if (lse != none) {
    const T* dout = call.dout.at<const T>(b, h) + token * call.dout.row;
    const T* o = call.o.at<const T>(b, h) + token * call.o.row;
    for (int c = lane * kVector; c < call.value_width; c += kLanesARow * kVector) {
      float x[kVector], y[kVector];
      load8(x, dout + c);
      load8(y, o + c);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sum = fmaf(x[i], y[i], sum);
    }
  }
  const unsigned group = 0xffu << (threadIdx.x % 32 / kLanesARow * kLanesARow);
#pragma unroll
  for (int offset = kLanesARow / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(group, sum, offset);
  if (lane != 0) return;
  if (lse != none && call.dlse != nullptr) sum -= call.dlse[head * call.queries + token];
  call.rows[at] = lse == none ? none : call.by_warpgroups ? -lse * kLog2E : -lse / call.scale;
  call.rows[heads * call.padded_queries + at] = -sum;
}

}  // namespace

void flash_backward_rows(StreamRef stream, const FlashCall& call, DType dtype) {
  const std::int64_t rows =
      static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
  const unsigned blocks = blocks_for(rows, kThreads / kLanesARow);
  if (dtype == DType::bf16)
    rows_kernel<bf16><<<blocks, kThreads, 0, stream_of(stream)>>>(call);
  else
    rows_kernel<f16><<<blocks, kThreads, 0, stream_of(stream)>>>(call);
  check_launch("flash_backward");
}

}  // namespace fovea::cuda
