// Gradients of positive random features of 16-bit rows, with directions held in shared memory.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"

namespace fovea::cuda {

namespace {

constexpr int kGradientTeams = 3;
constexpr int kGradientThreads = kGradientTeams * kGroupThreads;

__device__ __forceinline__ void load_shift(float (&shift)[2], const FeatureCall& call,
                                           const HeldRows& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
    shift[r] = rows.real[r] && call.kind != FeatureKind::relu_random
                   ? call.shift[call.row_of(rows.b, rows.h) + rows.token[r]]
                   : 0.0f;
}

// How a row's exponentials are made again: 2^(p by - minus), which are at most 1; those that were
// clamped, above `most`, have no gradient, and neither has what is no feature.
struct Again {
  float by, minus, most;
  __device__ __forceinline__ Again(const FeatureCall& call, float norm, float shift)
      : by(call.scale * kLog2E),
        minus((norm + shift) * kLog2E),
        most(call.stabiliser == Stabiliser::constant ? (kFeatureClamp - shift) * kLog2E : 126.0f) {}
  __device__ __forceinline__ float through(float p, float dy) const {
    const float z = fmaf(p, by, -minus);
    return z > most ? 0.0f : dy * exp2_fast(z);
  }
};

// Reads x, dy and shift once, the directions once a block; makes the features again; writes dx
// once.
// G: of dy.
template <class T, class G, FeatureKind kKind>
__global__ void __launch_bounds__(kGradientThreads, 1)
    held_gradients_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned tiles = tile_base();
  const HeldPlace place(call);
  const int slabs = call.slabs(), lane = static_cast<int>(threadIdx.x) % 32;
  const auto bytes = static_cast<unsigned>(slabs) * kHeldTileBytes;
  const float* matrix = call.w + std::int64_t{place.group} * call.directions * call.width;
  const auto as_they_are = [](int) { return 1.0f; };
  if constexpr (!__is_same(T, Wide<T>))
    hold_directions<Wide<T>, 1, 4>(tiles + 2 * bytes, slabs, call, matrix, as_they_are);
  const unsigned turned = __is_same(T, Wide<T>) ? tiles : tiles + 2 * bytes;
  hold_directions<T, 2, 4>(tiles, slabs, call, matrix, as_they_are);
  constexpr bool kRelu = kKind == FeatureKind::relu_random,
                 kPair = kKind == FeatureKind::softmax_pair;

  unsigned x[4][4];
  HeldRows rows(call, place, place.unit);
  load_held_rows<T>(x, call, rows);
  float shift[2];
  load_shift(shift, call, rows);
  Slab<G> dy;
  load_slab(dy, call, rows, 0, 0);
  for (int unit = place.unit; unit < place.units; unit += place.step) {
    float norm[2], past[2] = {};  // past: what -|x^|^2 / 2 takes back
    held_norms<T>(norm, x, call.scale);
    const Again again[2] = {{call, norm[0], shift[0]}, {call, norm[1], shift[1]}};
    float dx[8][4] = {};
    for (int slab = 0; slab < slabs; ++slab) {
      const unsigned at = static_cast<unsigned>(slab) * kHeldTileBytes;
      float p[8][4];
      begin_products();
      start_products<T, 2>(p, x, tiles + at, bytes);
      end_products(x, p);
      unsigned g[4][4];
      Slab<G> back;
      if constexpr (kPair) load_slab(back, call, rows, slab, call.directions);
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        float out[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int e = i % 4, r = e / 2, from = i / 4 * 2 + e % 2;
          const float sum = p[n + i / 4][e], given = dy.at(r, n / 2, from);
          if constexpr (kRelu) {
            out[i / 4][e] = sum > 0 ? given : 0.0f;
          } else {
            float one = again[r].through(sum, given);
            past[r] += one;
            if constexpr (kPair) {
              const float other = again[r].through(-sum, back.at(r, n / 2, from));
              past[r] += other;
              one -= other;
            }
            out[i / 4][e] = one;
          }
        }
        as_operand<Wide<T>>(g[n / 2], out[0], out[1]);
      }
      // Under way while this slab's product runs and the next one's are made.
      if (slab + 1 < slabs)
        load_slab(dy, call, rows, slab + 1, 0);
      else
        load_slab(dy, call, HeldRows(call, place, unit + place.step), 0, 0);
      begin_products();
      start_gradients<Wide<T>>(dx, g, turned + at);
      end_products(g, dx);
    }
    past[0] = quad_sum(past[0]) * call.scale;
    past[1] = quad_sum(past[1]) * call.scale;
    T* to = call.dx.at<T>(rows.b, rows.h);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = 32 * half + lane % 4 * 8;
        float v[8];
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const float2 own = held_numbers<T>(x, r, half, word);
          const int n = 4 * half + word;
          v[2 * word] = call.scale * (dx[n][2 * r] - past[r] * own.x);
          v[2 * word + 1] = call.scale * (dx[n][2 * r + 1] - past[r] * own.y);
        }
        if (rows.token[r] < call.rows && column < call.width)
          store8(to + rows.token[r] * call.dx.row + column, v);
      }
    }
    rows = HeldRows(call, place, unit + place.step);
    load_held_rows<T>(x, call, rows);
    load_shift(shift, call, rows);
  }
}

template <class T, class G, FeatureKind kKind>
void launch(StreamRef stream, const FeatureCall& call) {
  const int parts = __is_same(T, Wide<T>) ? 2 : 3;
  const unsigned bytes = static_cast<unsigned>(parts * call.slabs()) * kHeldTileBytes + 1024;
  launch_shared(stream, "features_backward", held_gradients_kernel<T, G, kKind>,
                held_grid(call, call.groups, kGradientTeams), kGradientThreads, bytes, call);
}

template <class T, class G>
void launch(StreamRef stream, const FeatureCall& call) {
  switch (call.kind) {
    case FeatureKind::softmax_pair:
      return launch<T, G, FeatureKind::softmax_pair>(stream, call);
    case FeatureKind::relu_random:
      return launch<T, G, FeatureKind::relu_random>(stream, call);
    default:
      return launch<T, G, FeatureKind::softmax>(stream, call);
  }
}

}  // namespace

template <class T>
void held_gradients(StreamRef stream, const FeatureCall& call) {
  call.dy_is_float ? launch<T, float>(stream, call) : launch<T, T>(stream, call);
}

template void held_gradients<bf16>(StreamRef, const FeatureCall&);
template void held_gradients<f16>(StreamRef, const FeatureCall&);

}  // namespace fovea::cuda
