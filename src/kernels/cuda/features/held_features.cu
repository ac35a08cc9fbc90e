// Positive random features of 16-bit rows, forward, with directions held in shared memory.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"

namespace fovea::cuda {

namespace {

constexpr float kInfinity = __builtin_huge_valf();
constexpr int kFeatureTeams = 2;
constexpr int kFeatureThreads = kFeatureTeams * kGroupThreads;

// What turns products into features, with exponents of two: 2^(min(p by - minus, most) - shift) +
// extra, or max(p scale, 0) + offset.
struct FeatureOf {
  float by, minus, most, shift, extra, scale;
  bool relu, valid;
  __device__ __forceinline__ FeatureOf(const FeatureCall& call, const RowScales& rows, int r) {
    const bool clamped = call.stabiliser == Stabiliser::constant;
    relu = call.kind == FeatureKind::relu_random;
    valid = rows.valid[r];
    scale = call.scale;
    by = call.scale * kLog2E;
    minus = rows.minus[r] * kLog2E;
    most = clamped ? kFeatureClamp * kLog2E : kInfinity;
    shift = clamped ? rows.shift[r] * kLog2E : 0.0f;
    extra = relu ? call.offset : rows.extra[r];
  }
  // Eight of a row to memory.
  template <class T>
  __device__ __forceinline__ void store(T* to, float (&p)[8]) const {
    if (relu) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        p[e] = fmaxf(p[e] * scale, 0.0f) + extra;
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        p[e] = exp2_fast(fminf(fmaf(p[e], by, -minus), most) - shift) + extra;
    }
    if (!valid) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        p[e] = 0;
    }
    store8(to, p);
  }
};

// The largest product of a lane's rows; with `pair` of directions and their opposites.
template <int kSlabs>
__device__ __forceinline__ void largest_products(float (&most)[2], const float (&p)[kSlabs][8][4],
                                                 const FeatureCall& call, int lane) {
  const bool pair = call.kind == FeatureKind::softmax_pair;
  float least[2] = {kInfinity, kInfinity};
  most[0] = most[1] = -kInfinity;
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (slab * kTileSide + 32 * half + lane % 4 * 8 >= call.directions) continue;
#pragma unroll
      for (int n = 4 * half; n < 4 * half + 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          most[e / 2] = fmaxf(most[e / 2], p[slab][n][e]);
          if (pair) least[e / 2] = fminf(least[e / 2], p[slab][n][e]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
    most[r] = quad_max(fmaxf(most[r], pair ? -least[r] : -kInfinity)) * call.scale;
}

// Reads x once and the directions once a block, writes the features once.
template <class T, int kSlabs, bool kMaxima>
__global__ void __launch_bounds__(kFeatureThreads, 1)
    held_features_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned tiles = (shared_base() + 1023) / 1024 * 1024;
  const HeldPlace place(call);
  hold_directions<T, true>(tiles, kSlabs, call,
                           call.w + std::int64_t{place.group} * call.directions * call.width);
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
    open_products();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      start_products<T>(p[slab], x, tiles + static_cast<unsigned>(slab) * kHeldTileBytes,
                        tiles + static_cast<unsigned>(kSlabs + slab) * kHeldTileBytes);
    commit_products();
    settle_products();
    keep_products(x);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      keep_products(p[slab]);
    largest_products<kSlabs>(most, p, call, lane);
    if constexpr (kMaxima) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (lane % 4 == 0 && rows.token[r] < call.rows)
          call.shift[call.row_of(rows.b, rows.h) + rows.token[r]] =
              rows.real[r] ? most[r] : -kInfinity;
      }
    } else {
      const RowScales scales = scale_rows(call, most, norm, rows.b, rows.h, rows.token, lane);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const FeatureOf map(call, scales, r);
        T* y = static_cast<T*>(call.y.data) +
               (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features + lane % 4 * 8;
        const int left = rows.token[r] < call.rows ? call.directions - lane % 4 * 8 : 0;
#pragma unroll
        for (int part = 0; part < 2 * kSlabs; ++part) {
          if (32 * part >= left) continue;
          float v[8];
#pragma unroll
          for (int e = 0; e < 8; ++e)
            v[e] = p[part / 2][part % 2 * 4 + e / 2][2 * r + e % 2];
          map.store(y + 32 * part, v);
          if (call.kind != FeatureKind::softmax_pair) continue;
#pragma unroll
          for (int e = 0; e < 8; ++e)
            v[e] = -p[part / 2][part % 2 * 4 + e / 2][2 * r + e % 2];
          map.store(y + call.directions + 32 * part, v);
        }
      }
    }
    rows = ahead;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[k][i] = next[k][i];
    }
  }
}

template <class T, int kSlabs, bool kMaxima>
void launch(StreamRef stream, const FeatureCall& call) {
  const unsigned bytes = 2 * kSlabs * kHeldTileBytes + 1024;
  const auto kernel = held_features_kernel<T, kSlabs, kMaxima>;
  allow_feature_shared(kernel, bytes);
  kernel<<<held_grid(call, kFeatureTeams), kFeatureThreads, bytes, stream_of(stream)>>>(call);
  check_launch("features_forward");
}

template <class T, bool kMaxima>
void launch(StreamRef stream, const FeatureCall& call) {
  switch (call.slabs()) {
    case 1:
      return launch<T, 1, kMaxima>(stream, call);
    case 2:
      return launch<T, 2, kMaxima>(stream, call);
    default:
      return launch<T, kHeldSlabs, kMaxima>(stream, call);
  }
}

}  // namespace

template <class T>
void held_features(StreamRef stream, const FeatureCall& call, bool maxima) {
  if (maxima)
    launch<T, true>(stream, call);
  else
    launch<T, false>(stream, call);
}

template void held_features<bf16>(StreamRef, const FeatureCall&, bool);
template void held_features<f16>(StreamRef, const FeatureCall&, bool);

}  // namespace fovea::cuda
