// Rotary positions.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/rope.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // heads a thread rotates with the same angles

// angles[place, t] = (cos, sin) of p theta_t: f64, once for all heads; f32 could not hold a large
// angle. Writes `angles` once, 1 / heads of the bytes of x or less.
__global__ void __launch_bounds__(kThreads)
    angles_kernel(float2* angles, const std::int32_t* positions, std::int64_t places,
                  std::int64_t half, const RopeArgs args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places * half) return;
  const std::int64_t place = quotient(i, half), t = i - place * half;
  const std::int64_t p = positions != nullptr ? positions[place] : args.first + place;
  const double theta = pow(args.base, -2.0 * static_cast<double>(t) / args.width);
  double sine, cosine;
  sincos(static_cast<double>(p) * theta, &sine, &cosine);
  angles[i] =
      make_float2(static_cast<float>(cosine), static_cast<float>(args.inverse ? -sine : sine));
}

struct Layout {
  std::int64_t batch, heads, tokens, width;
  std::int64_t stride[3];   // of x, in elements
  std::int64_t half;        // pairs
  bool positions_a_sample;  // else the angles of all samples are one row
};

// A thread has one pack of pairs (or of features that only move) of up to kHeads heads of one
// token. Reads x once, writes out once; angles mostly hit L2.
template <int kWidth, bool kInterleaved, class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* out, const T* x, const float2* angles, const Layout s, std::int64_t packs,
                std::int64_t head_groups) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= s.batch * head_groups * s.tokens * packs) return;
  const std::int64_t token_row = quotient(i, packs), pack = i - token_row * packs;
  const std::int64_t group_row = quotient(token_row, s.tokens),
                     n = token_row - group_row * s.tokens;
  const std::int64_t b = quotient(group_row, head_groups), group = group_row - b * head_groups;
  // Interleaved packs hold whole pairs; others hold one side of as many pairs as elements.
  constexpr int kPairs = kInterleaved ? (kWidth > 1 ? kWidth / 2 : 1) : kWidth;
  const std::int64_t turning = s.half / kPairs;
  const bool turns = pack < turning;
  const std::int64_t first = turns ? pack * kPairs : 0;  // pair
  const std::int64_t place = s.positions_a_sample ? b * s.tokens + n : n;
  float2 angle[kPairs];
  if (turns) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
      angle[k] = angles[place * s.half + first + k];
  }
  // Where the thread's one or two packs stand in a row.
  constexpr bool kOnePack = kInterleaved && kWidth > 1;
  const std::int64_t left = !turns         ? 2 * s.half + (pack - turning) * kWidth
                            : kInterleaved ? 2 * first
                                           : first,
                     right = kInterleaved ? left + 1 : left + s.half;
  const bool two = turns && !kOnePack;
  const std::int64_t h0 = group * kHeads;
  Packed<T, kWidth> a[kHeads], c[kHeads];
  const T* const from = x + b * s.stride[0] + n * s.stride[2];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h0 + h >= s.heads) continue;
    a[h].load(from + (h0 + h) * s.stride[1] + left);
    if (two) c[h].load(from + (h0 + h) * s.stride[1] + right);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h0 + h >= s.heads) continue;
    T* const to = out + ((b * s.heads + h0 + h) * s.tokens + n) * s.width;
    float u[kWidth], v[kWidth];
    a[h].unpack(u);
    if (two) {
      c[h].unpack(v);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float2 turn = angle[kOnePack ? 0 : k];
        const float p = u[k], q = v[k];
        u[k] = p * turn.x - q * turn.y;
        v[k] = p * turn.y + q * turn.x;
      }
      store_packed(to + right, v);
    } else if (turns) {
      if constexpr (kOnePack) {
#pragma unroll
        for (int k = 0; k < kPairs; ++k) {
          const float p = u[2 * k], q = u[2 * k + 1];
          u[2 * k] = p * angle[k].x - q * angle[k].y;
          u[2 * k + 1] = p * angle[k].y + q * angle[k].x;
        }
      }
    }
    store_packed(to + left, u);
  }
}

}  // namespace

void rope_forward(StreamRef stream, const View& out, const View& x, const View& positions,
                  const RopeArgs& args) {
  if (x.numel() == 0) return;
  const Layout shape{x.dim[0],
                     x.dim[1],
                     x.dim[2],
                     x.dim[3],
                     {x.stride[0], x.stride[1], x.stride[2]},
                     args.width / 2,
                     static_cast<bool>(positions)};
  const std::int64_t places = positions ? shape.batch * shape.tokens : shape.tokens,
                     count = places * shape.half, rest = shape.width - 2 * shape.half;
  float2* angles = nullptr;
  if (count > 0) {
    angles = static_cast<float2*>(
        scratch(stream, static_cast<std::size_t>(count) * sizeof(float2), "rope"));
    angles_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(
        angles, positions.ptr<std::int32_t>(), places, shape.half, args);
    check_launch("rope");
  }
  const std::int64_t groups = (shape.heads + kHeads - 1) / kHeads;
  const std::int64_t side = args.interleaved ? 2 * shape.half : shape.half;
  const bool packed = is_aligned(x.data) && is_aligned(out.data) && side % kVector == 0 &&
                      rest % kVector == 0 && x.stride[0] % kVector == 0 &&
                      x.stride[1] % kVector == 0 && x.stride[2] % kVector == 0;
  for_float(x.dtype, "rope", [&](auto zero) {
    using T = decltype(zero);
    const auto go = [&](auto kernel, std::int64_t packs) {
      const std::int64_t threads = shape.batch * groups * shape.tokens * packs;
      kernel<<<blocks_for(threads, kThreads), kThreads, 0, stream_of(stream)>>>(
          out.ptr<T>(), x.ptr<T>(), angles, shape, packs, groups);
      check_launch("rope");
    };
    const std::int64_t plain = shape.half + rest, packs = (side + rest) / kVector;
    if (args.interleaved)
      packed ? go(rope_kernel<kVector, true, T>, packs) : go(rope_kernel<1, true, T>, plain);
    else
      packed ? go(rope_kernel<kVector, false, T>, packs) : go(rope_kernel<1, false, T>, plain);
  });
}

}  // namespace fovea::cuda
