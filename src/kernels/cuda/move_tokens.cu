#include "kernels/cuda/launch.cuh"
#include "kernels/move_tokens.h"

namespace fovea::cuda {

namespace {

constexpr int kMoveThreads = 256;

// One element a thread; reads what it moves once, writes `to` once.
template <class T>
__global__ void __launch_bounds__(kMoveThreads)
    move_tokens_kernel(const View to, const View from, std::int64_t first, bool reversed, T rest,
                       std::int64_t count) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kMoveThreads + threadIdx.x;
  if (at >= count) return;
  const std::int64_t tokens = to.dim[2], other = from.dim[2], n = tokens < other ? tokens : other;
  const std::int64_t c = at % to.dim[3], t = at / to.dim[3] % tokens,
                     head = at / to.dim[3] / tokens;
  const std::int64_t b = head / to.dim[1], h = head % to.dim[1];
  const std::int64_t mine = tokens > other ? t - first : t;
  const std::int64_t turned = reversed ? n - 1 - mine : mine;
  const std::int64_t source = tokens > other ? turned : first + turned;
  static_cast<T*>(to.data)[at] =
      mine >= 0 && mine < n
          ? static_cast<const T*>(from.data)[b * from.stride[0] + h * from.stride[1] +
                                             source * from.stride[2] + c * from.stride[3]]
          : rest;
}

template <class T>
void launch(StreamRef stream, const View& to, const View& from, std::int64_t first, bool reversed,
            T rest) {
  const std::int64_t count = to.numel();
  if (count == 0) return;
  move_tokens_kernel<T><<<blocks_for(count, kMoveThreads), kMoveThreads, 0, stream_of(stream)>>>(
      to, from, first, reversed, rest, count);
  check_launch("move_tokens");
}

}  // namespace

void move_tokens(StreamRef stream, const View& to, const View& from, std::int64_t first,
                 bool reversed, double rest) {
  switch (to.dtype) {
    case DType::f32:
      return launch(stream, to, from, first, reversed, static_cast<float>(rest));
    case DType::bf16:
      return launch(stream, to, from, first, reversed,
                    __float2bfloat16_rn(static_cast<float>(rest)));
    case DType::f16:
      return launch(stream, to, from, first, reversed, __float2half_rn(static_cast<float>(rest)));
    case DType::i64:
      return launch(stream, to, from, first, reversed, static_cast<std::int64_t>(rest));
    case DType::i32:
      return launch(stream, to, from, first, reversed, static_cast<std::int32_t>(rest));
    case DType::u8:
      return launch(stream, to, from, first, reversed, static_cast<std::uint8_t>(rest));
    case DType::f64:
      refuse("move_tokens", to.dtype);
  }
}

}  // namespace fovea::cuda
