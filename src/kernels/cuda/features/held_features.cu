// Positive random features of 16-bit rows, forward, with directions held in shared memory.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"

namespace fovea::cuda {

namespace {

constexpr float kInfinity = __builtin_huge_valf();
constexpr int kFeatureTeams = 2;
constexpr int kFeatureThreads = kFeatureTeams * kGroupThreads;

// What turns a row's products into features, with exponents of two: 2^min(p by - minus, most) +
// extra, or max(p by, 0) + extra.
template <FeatureKind kKind>
struct FeatureOf {
  float by, minus, most, extra;
  __device__ __forceinline__ FeatureOf(const FeatureCall& call, const RowScales& rows, int r) {
    const bool clamped = call.stabiliser == Stabiliser::constant, valid = rows.valid[r];
    const float shift = clamped ? rows.shift[r] : 0.0f;  // else it is in minus
    most = clamped ? (kFeatureClamp - shift) * kLog2E : kInfinity;
    if constexpr (kKind == FeatureKind::relu_random) {
      by = call.scale, minus = 0, extra = valid ? call.offset : 0.0f;
    } else {
      by = call.scale * kLog2E;
      minus = valid ? (rows.minus[r] + shift) * kLog2E : kInfinity;
      extra = valid ? rows.extra[r] : 0.0f;
    }
  }
  __device__ __forceinline__ float of(float p) const {
    if constexpr (kKind == FeatureKind::relu_random)
      return fmaxf(p * by, 0.0f) + extra;
    else
      return exp2_fast(fminf(fmaf(p, by, -minus), most)) + extra;
  }
};

// The largest product of a lane's rows; with those of opposite directions where they are features.
template <int kSlabs, FeatureKind kKind>
__device__ __forceinline__ void largest_products(float (&most)[2], const float (&p)[kSlabs][8][4],
                                                 const FeatureCall& call, int lane) {
  most[0] = most[1] = -kInfinity;
#pragma unroll
  for (int part = 0; part < 2 * kSlabs; ++part) {
    // What stands where there is no direction is zero, and counts for nothing.
    const bool real = 32 * part + lane % 4 * 8 < call.directions;
    float here[2] = {-kInfinity, -kInfinity};
#pragma unroll
    for (int n = part % 2 * 4; n < part % 2 * 4 + 4; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = p[part / 2][n][e];
        here[e / 2] = fmaxf(here[e / 2], kKind == FeatureKind::softmax_pair ? fabsf(x) : x);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      most[r] = real ? fmaxf(most[r], here[r]) : most[r];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
    most[r] = quad_max(most[r]) * call.scale;
}

// Reads x once and the directions once a block, writes the features once.
template <class T, int kSlabs, FeatureKind kKind, bool kMaxima>
__global__ void __launch_bounds__(kFeatureThreads, 1)
    held_features_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned tiles = tile_base();
  const HeldPlace place(call);
  hold_directions<T, 2, 8>(tiles, kSlabs, call,
                           call.w + std::int64_t{place.group} * call.directions * call.width,
                           [](int) { return 1.0f; });
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned x[4][4];
  HeldRows rows(call, place, place.unit);
  load_held_rows<T>(x, call, rows);
  for (int unit = place.unit; unit < place.units; unit += place.step) {
    float norm[2], most[2], p[kSlabs][8][4];
    held_norms<T>(norm, x, call.scale);
    const HeldRows ahead(call, place, unit + place.step);
    unsigned next[4][4];
    load_held_rows<T>(next, call, ahead);
    begin_products();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      start_products<T, 2>(p[slab], x, tiles + static_cast<unsigned>(slab) * kHeldTileBytes,
                           kSlabs * kHeldTileBytes);
    end_products(x, p);
    largest_products<kSlabs, kKind>(most, p, call, lane);
    if constexpr (kMaxima) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (lane % 4 == 0 && rows.token[r] < call.rows)
          call.found[call.row_of(rows.b, rows.h) + rows.token[r]] =
              rows.real[r] ? most[r] : -kInfinity;
      }
    } else {
      const RowScales scales = scale_rows(call, most, norm, rows.b, rows.h, rows.token, lane);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const FeatureOf<kKind> map(call, scales, r);
        T* y = static_cast<T*>(call.y.data) +
               (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features + lane % 4 * 8;
        const int left = rows.token[r] < call.rows ? call.directions - lane % 4 * 8 : 0;
#pragma unroll
        for (int part = 0; part < 2 * kSlabs; ++part) {
          float v[8], back[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            const float x = p[part / 2][part % 2 * 4 + e / 2][2 * r + e % 2];
            v[e] = map.of(x);
            if constexpr (kKind == FeatureKind::softmax_pair) back[e] = map.of(-x);
          }
          if (32 * part >= left) continue;
          store8(y + 32 * part, v);
          if constexpr (kKind == FeatureKind::softmax_pair)
            store8(y + call.directions + 32 * part, back);
        }
      }
    }
    rows = ahead;
    copy_held_rows(x, next);
  }
}

template <class T, int kSlabs, FeatureKind kKind, bool kMaxima>
void launch(StreamRef stream, const FeatureCall& call) {
  const unsigned bytes = 2 * kSlabs * kHeldTileBytes + 1024;
  launch_shared(stream, "features_forward", held_features_kernel<T, kSlabs, kKind, kMaxima>,
                held_grid(call, call.groups, kFeatureTeams), kFeatureThreads, bytes, call);
}

template <class T, FeatureKind kKind, bool kMaxima>
void launch(StreamRef stream, const FeatureCall& call) {
  switch (call.slabs()) {
    case 1:
      return launch<T, 1, kKind, kMaxima>(stream, call);
    case 2:
      return launch<T, 2, kKind, kMaxima>(stream, call);
    default:
      return launch<T, kHeldSlabs, kKind, kMaxima>(stream, call);
  }
}

template <class T, FeatureKind kKind>
void launch(StreamRef stream, const FeatureCall& call, bool maxima) {
  if (maxima)
    launch<T, kKind, true>(stream, call);
  else
    launch<T, kKind, false>(stream, call);
}

}  // namespace

template <class T>
void held_features(StreamRef stream, const FeatureCall& call, bool maxima) {
  switch (call.kind) {
    case FeatureKind::softmax_pair:
      return launch<T, FeatureKind::softmax_pair>(stream, call, maxima);
    case FeatureKind::relu_random:
      return launch<T, FeatureKind::relu_random, false>(stream, call);
    default:
      return launch<T, FeatureKind::softmax>(stream, call, maxima);
  }
}

template void held_features<bf16>(StreamRef, const FeatureCall&, bool);
template void held_features<f16>(StreamRef, const FeatureCall&, bool);

}  // namespace fovea::cuda
