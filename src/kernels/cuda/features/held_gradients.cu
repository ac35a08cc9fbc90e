// Gradients of positive random features of 16-bit rows, with directions held in shared memory.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"

namespace fovea::cuda {

namespace {

constexpr int kGradientTeams = 3;
constexpr int kGradientThreads = kGradientTeams * kGroupThreads;

// A lane's gradients of a slab of features: eight from feature 32 half + 8 (lane % 4) on of each of
// its rows, zero where there are none.
using Slab = float[2][2][8];

template <class T>
__device__ __forceinline__ void load_eight(float (&to)[8], const FeatureCall& call,
                                           std::int64_t at) {
  if (call.dy_is_float)
    load8(to, static_cast<const float*>(call.dy) + at);
  else
    load8(to, static_cast<const T*>(call.dy) + at);
}

template <class T>
__device__ __forceinline__ void load_slab(Slab& dy, const FeatureCall& call, const HeldRows& rows,
                                          int slab, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = slab * kTileSide + 32 * half + lane % 4 * 8;
      if (rows.real[r] && column < call.directions) {
        load_eight<T>(dy[r][half], call,
                      (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features + column);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          dy[r][half][e] = 0;
      }
    }
  }
}

// How a row's exponentials are made again: z = p by - norm, e^.. = 2^(z - shift).
struct Again {
  float by, norm, shift, most;
  __device__ __forceinline__ Again(const FeatureCall& call, float half_norm, float row_shift)
      : by(call.scale * kLog2E),
        norm(half_norm * kLog2E),
        shift(row_shift * kLog2E),
        most(call.stabiliser == Stabiliser::constant ? kFeatureClamp * kLog2E
                                                     : __builtin_huge_valf()) {}
  __device__ __forceinline__ float through(float p, float dy) const {
    const float z = fmaf(p, by, -norm);
    return z > most ? 0.0f : dy * exp2_fast(z - shift);
  }
};

// Reads x, dy and shift once, the directions once a block; makes the features again; writes dx
// once.
template <class T>
__global__ void __launch_bounds__(kGradientThreads, 1)
    held_gradients_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned tiles = (shared_base() + 1023) / 1024 * 1024;
  const HeldPlace place(call);
  const int slabs = call.slabs(), lane = static_cast<int>(threadIdx.x) % 32;
  const auto bytes = static_cast<unsigned>(slabs) * kHeldTileBytes;
  const float* matrix = call.w + std::int64_t{place.group} * call.directions * call.width;
  if constexpr (!__is_same(T, Wide<T>))
    hold_directions<Wide<T>, false>(tiles + 2 * bytes, slabs, call, matrix);
  const unsigned turned = __is_same(T, Wide<T>) ? tiles : tiles + 2 * bytes;
  hold_directions<T, true>(tiles, slabs, call, matrix);
  const bool relu = call.kind == FeatureKind::relu_random,
             pair = call.kind == FeatureKind::softmax_pair;

  unsigned x[4][4];
  HeldRows rows(call, place, place.unit);
  load_held_rows<T>(x, call, rows);
  Slab dy;
  load_slab<T>(dy, call, rows, 0, lane);
  for (int unit = place.unit; unit < place.units; unit += place.step) {
    const HeldRows ahead(call, place, unit + place.step);
    float norm[2], shift[2] = {}, past[2] = {};  // past: what -|x^|^2 / 2 takes back
    held_norms<T>(norm, x, call.scale);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (rows.real[r] && !relu) shift[r] = call.shift[call.row_of(rows.b, rows.h) + rows.token[r]];
    }
    const Again again[2] = {{call, norm[0], shift[0]}, {call, norm[1], shift[1]}};
    float dx[8][4] = {};
    unsigned g[4][4];
    for (int slab = 0; slab < slabs; ++slab) {
      const unsigned at = static_cast<unsigned>(slab) * kHeldTileBytes;
      float p[8][4];
      open_products();
      start_products<T>(p, x, tiles + at, tiles + bytes + at);
      commit_products();
      settle_products();
      keep_products(x);
      keep_products(dx);
      keep_products(p);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = slab * kTileSide + 32 * half + lane % 4 * 8;
        const bool real = column < call.directions;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float back[8] = {};
          if (pair && real && rows.real[r])
            load_eight<T>(back, call,
                          (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features +
                              call.directions + column);
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            float& sum = p[4 * half + e / 2][2 * r + e % 2];
            float out;
            if (relu) {
              out = sum > 0 ? dy[r][half][e] : 0.0f;
            } else {
              out = real ? again[r].through(sum, dy[r][half][e]) : 0.0f;
              past[r] += out;
            }
            if (pair) {
              const float other = real ? again[r].through(-sum, back[e]) : 0.0f;
              past[r] += other;
              out -= other;
            }
            sum = out;
          }
        }
      }
#pragma unroll
      for (int k = 0; k < 4; ++k)
        as_operand<Wide<T>>(g[k], p[2 * k], p[2 * k + 1]);
      // Under way while this slab's product runs and the next one's exponents are made.
      if (slab + 1 < slabs)
        load_slab<T>(dy, call, rows, slab + 1, lane);
      else
        load_slab<T>(dy, call, ahead, 0, lane);
      open_products();
      start_gradients<Wide<T>>(dx, g, turned + at);
      commit_products();
    }
    settle_products();
    keep_products(dx);
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
    rows = ahead;
    load_held_rows<T>(x, call, rows);
  }
}

}  // namespace

template <class T>
void held_gradients(StreamRef stream, const FeatureCall& call) {
  const int parts = __is_same(T, Wide<T>) ? 2 : 3;
  const unsigned bytes = static_cast<unsigned>(parts * call.slabs()) * kHeldTileBytes + 1024;
  const auto kernel = held_gradients_kernel<T>;
  allow_feature_shared(kernel, bytes);
  kernel<<<held_grid(call, kGradientTeams), kGradientThreads, bytes, stream_of(stream)>>>(call);
  check_launch("features_backward");
}

template void held_gradients<bf16>(StreamRef, const FeatureCall&);
template void held_gradients<f16>(StreamRef, const FeatureCall&);

}  // namespace fovea::cuda
