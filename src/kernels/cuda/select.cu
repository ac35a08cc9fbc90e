// Rows taken from one of two tensors.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/select.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;

struct Mask {
  const std::uint8_t* at;
  std::int64_t by_b, by_x, by_y;
};

// One Word a thread, grid-stride: reads one input and a byte of the mask, writes once. Word is an
// integer of one element, or of as many as 16 bytes hold.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    select_rows_kernel(Word* __restrict__ out, Mask mask, const Word* __restrict__ a,
                       const Word* __restrict__ other, std::int64_t n, std::int64_t width,
                       std::int64_t xs, std::int64_t ys) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    const std::int64_t row = quotient(i, width), plane = quotient(row, ys), b = quotient(plane, xs);
    const std::int64_t at =
        b * mask.by_b + (plane - b * xs) * mask.by_x + (row - plane * ys) * mask.by_y;
    const Word* const from = mask.at[at] != 0 ? a : other;
    out[i] = from != nullptr ? from[i] : Word{};
  }
}

template <class Word>
void launch(StreamRef stream, const View& out, const View& mask, const View& a, const View& other) {
  const auto stride = [&](int axis) { return mask.dim[axis] == 1 ? 0 : mask.stride[axis]; };
  const auto elements = static_cast<std::int64_t>(sizeof(Word) / size_of(out.dtype));
  const std::int64_t n = out.numel() / elements;
  if (n == 0) return;
  constexpr std::int64_t kMostBlocks = 1 << 16;
  const std::int64_t blocks = (n + kThreads - 1) / kThreads;
  select_rows_kernel<Word><<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks),
                             kThreads, 0, stream_of(stream)>>>(
      out.ptr<Word>(), Mask{mask.ptr<std::uint8_t>(), stride(0), stride(1), stride(2)},
      a.ptr<Word>(), other.ptr<Word>(), n, out.dim[3] / elements, out.dim[1], out.dim[2]);
  check_launch("select_rows");
}

bool starts_at_16_bytes(const View& x) {
  return reinterpret_cast<unsigned long long>(x.data) % 16 == 0;
}

}  // namespace

void select_rows(StreamRef stream, const View& out, const View& mask, const View& a,
                 const View& other) {
  const auto row = out.dim[3] * static_cast<std::int64_t>(size_of(out.dtype));
  if (row % 16 == 0 && starts_at_16_bytes(out) && starts_at_16_bytes(a) &&
      starts_at_16_bytes(other))
    return launch<uint4>(stream, out, mask, a, other);
  switch (size_of(out.dtype)) {
    case 1:
      return launch<std::uint8_t>(stream, out, mask, a, other);
    case 2:
      return launch<std::uint16_t>(stream, out, mask, a, other);
    case 4:
      return launch<std::uint32_t>(stream, out, mask, a, other);
    default:
      return launch<std::uint64_t>(stream, out, mask, a, other);
  }
}

}  // namespace fovea::cuda
