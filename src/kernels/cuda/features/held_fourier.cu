// RFA's sines and cosines of 16-bit rows, forward and backward, with a head's directions held in
// shared memory. sigma is multiplied into the directions, whose three parts hold all of f32, and x
// is not rounded again: angles are as exact as f32 sums.

#include "kernels/cuda/features/angles.cuh"
#include "kernels/cuda/features/held.cuh"

namespace fovea::cuda {

namespace {

constexpr int kTeams = 2, kThreads = kTeams * kGroupThreads, kParts = 3;
constexpr int kForwardBlocks = 2;  // that share a multiprocessor

// |x| and 1 / ((|x| + eps) temperature) of both rows.
template <class T>
__device__ __forceinline__ void row_lengths(float (&norm)[2], float (&inverse)[2],
                                            const unsigned (&x)[4][4], const FeatureCall& call) {
  held_squares<T>(norm, x);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    norm[r] = sqrtf(norm[r]);
    inverse[r] = 1.0f / ((norm[r] + kNormEps) * call.temperature);
  }
}

// Reads x once, the directions once a block; writes the features once.
template <class T>
__global__ void __launch_bounds__(kThreads, kForwardBlocks)
    held_fourier_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned tiles = tile_base();
  const HeldPlace place(call);
  const int slabs = call.slabs(), lane = static_cast<int>(threadIdx.x) % 32;
  const auto bytes = static_cast<unsigned>(slabs) * kHeldTileBytes;
  const T* sigma = static_cast<const T*>(call.sigma) + place.group * call.sigma_row;
  hold_directions<T, kParts, 8>(tiles, slabs, call, call.matrix(place.group),
                                [&](int column) { return to_float(sigma[column]); });
  unsigned x[4][4];
  HeldRows rows(call, place, place.unit);
  load_held_rows<T>(x, call, rows);
  for (int unit = place.unit; unit < place.units; unit += place.step) {
    float norm[2], inverse[2];
    row_lengths<T>(norm, inverse, x, call);
    const HeldRows ahead(call, place, unit + place.step);
    unsigned next[4][4];
    load_held_rows<T>(next, call, ahead);
    for (int slab = 0; slab < slabs; ++slab) {
      float p[8][4];
      begin_products();
      start_products<T, kParts>(p, x, tiles + static_cast<unsigned>(slab) * kHeldTileBytes, bytes);
      end_products(x, p);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        T* y = static_cast<T*>(call.y.data) +
               (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = slab * kTileSide + 32 * half + lane % 4 * 8;
          float sines[8], cosines[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            sine_cosine(p[4 * half + e / 2][2 * r + e % 2] * inverse[r], sines[e], cosines[e]);
            sines[e] = rows.real[r] ? sines[e] : 0.0f;
            cosines[e] = rows.real[r] ? cosines[e] : 0.0f;
          }
          if (rows.token[r] >= call.rows || column >= call.directions) continue;
          store8(y + column, sines);
          store8(y + call.directions + column, cosines);
        }
      }
    }
    rows = ahead;
    copy_held_rows(x, next);
  }
}

// Of 16 rows, from each lane's sums over its two: the warp's piece of dsigma, `to` [width].
__device__ __forceinline__ void store_column_sums(float* to, float (&sums)[2][8], int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2)
        sums[half][e] += __shfl_xor_sync(~0u, sums[half][e], offset);
    }
    const int column = 32 * half + lane % 4 * 8;
    if (lane < 4 && column < width) store8(to + column, sums[half]);
  }
}

// Reads x and dy once, the directions once a block; makes the angles again; writes dx and a piece
// of dsigma for every 16 rows once.
// G: of dy.
template <class T, class G>
__global__ void __launch_bounds__(kThreads, 1)
    held_fourier_gradients_kernel(const __grid_constant__ FeatureCall call) {
  using Turned = Wide<T>;
  const unsigned tiles = tile_base();
  const HeldPlace place(call);
  const int slabs = call.slabs(), lane = static_cast<int>(threadIdx.x) % 32;
  const auto bytes = static_cast<unsigned>(slabs) * kHeldTileBytes;
  const unsigned turned = tiles + kParts * bytes;
  const float* matrix = call.matrix(place.group);
  const T* sigma = static_cast<const T*>(call.sigma) + place.group * call.sigma_row;
  hold_directions<Turned, 1, 4>(turned, slabs, call, matrix, [](int) { return 1.0f; });
  hold_directions<T, kParts, 4>(tiles, slabs, call, matrix,
                                [&](int column) { return to_float(sigma[column]); });
  float factor[2][8];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int column = 32 * half + lane % 4 * 8 + e;
      factor[half][e] = column < call.width ? to_float(sigma[column]) : 0.0f;
    }
  }

  unsigned x[4][4];
  HeldRows rows(call, place, place.unit);
  load_held_rows<T>(x, call, rows);
  Slab<G> sines, cosines;
  load_slab(sines, call, rows, 0, 0);
  load_slab(cosines, call, rows, 0, call.directions);
  for (int unit = place.unit; unit < place.units; unit += place.step) {
    float norm[2], inverse[2];
    row_lengths<T>(norm, inverse, x, call);
    float dx[8][4] = {};  // of sigma x~ / t
    for (int slab = 0; slab < slabs; ++slab) {
      const unsigned at = static_cast<unsigned>(slab) * kHeldTileBytes;
      float p[8][4];
      begin_products();
      start_products<T, kParts>(p, x, tiles + at, bytes);
      end_products(x, p);
      unsigned g[4][4];
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        float out[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int e = i % 4, r = e / 2, from = i / 4 * 2 + e % 2;
          float s, c;
          sine_cosine(p[n + i / 4][e] * inverse[r], s, c);
          out[i / 4][e] = sines.at(r, n / 2, from) * c - cosines.at(r, n / 2, from) * s;
        }
        as_operand<Turned>(g[n / 2], out[0], out[1]);
      }
      // Under way while this slab's product runs and the next one's are made.
      if (slab + 1 < slabs) {
        load_slab(sines, call, rows, slab + 1, 0);
        load_slab(cosines, call, rows, slab + 1, call.directions);
      } else {
        const HeldRows ahead(call, place, unit + place.step);
        load_slab(sines, call, ahead, 0, 0);
        load_slab(cosines, call, ahead, 0, call.directions);
      }
      begin_products();
      start_gradients<Turned>(dx, g, turned + at);
      end_products(g, dx);
    }

    float dsigma[2][8] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float v[2][8], along = 0;  // along: <x, sigma dx>
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const float2 own = held_numbers<T>(x, r, half, word);
          const int n = 4 * half + word;
          const float left = dx[n][2 * r], right = dx[n][2 * r + 1];
          dsigma[half][2 * word] += left * own.x * inverse[r];
          dsigma[half][2 * word + 1] += right * own.y * inverse[r];
          v[half][2 * word] = left * factor[half][2 * word];
          v[half][2 * word + 1] = right * factor[half][2 * word + 1];
          along = fmaf(own.x, v[half][2 * word], along);
          along = fmaf(own.y, v[half][2 * word + 1], along);
        }
      }
      along = quad_sum(along);
      const float back = norm[r] > 0 ? along * inverse[r] / (norm[r] * (norm[r] + kNormEps)) : 0.0f;
      if (call.dx.data == nullptr || rows.token[r] >= call.rows) continue;
      T* to = call.dx.at<T>(rows.b, rows.h) + rows.token[r] * call.dx.row;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = 32 * half + lane % 4 * 8;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const float2 own = held_numbers<T>(x, r, half, word);
          v[half][2 * word] = v[half][2 * word] * inverse[r] - own.x * back;
          v[half][2 * word + 1] = v[half][2 * word + 1] * inverse[r] - own.y * back;
        }
        if (column < call.width) store8(to + column, v[half]);
      }
    }
    if (call.partial != nullptr) {
      const std::int64_t part =
          (std::int64_t{rows.b} * call.tiles() + unit % call.tiles()) * kGroupWarps +
          tile_warp() % kGroupWarps;
      store_column_sums(call.partial + (part * call.heads + rows.h) * call.width, dsigma,
                        call.width);
    }
    rows = HeldRows(call, place, unit + place.step);
    load_held_rows<T>(x, call, rows);
  }
}

}  // namespace

template <class T>
void held_fourier(StreamRef stream, const FeatureCall& call) {
  const unsigned bytes = static_cast<unsigned>(kParts * call.slabs()) * kHeldTileBytes + 1024;
  launch_shared(stream, "features_forward", held_fourier_kernel<T>,
                held_grid(call, call.heads, kTeams, kForwardBlocks), kThreads, bytes, call);
}

namespace {

template <class T, class G>
void launch_gradients(StreamRef stream, const FeatureCall& call) {
  const unsigned bytes = static_cast<unsigned>((kParts + 1) * call.slabs()) * kHeldTileBytes + 1024;
  launch_shared(stream, "features_backward", held_fourier_gradients_kernel<T, G>,
                held_grid(call, call.heads, kTeams), kThreads, bytes, call);
}

}  // namespace

template <class T>
void held_fourier_gradients(StreamRef stream, const FeatureCall& call) {
  call.dy_is_float ? launch_gradients<T, float>(stream, call)
                   : launch_gradients<T, T>(stream, call);
}

template void held_fourier<bf16>(StreamRef, const FeatureCall&);
template void held_fourier<f16>(StreamRef, const FeatureCall&);
template void held_fourier_gradients<bf16>(StreamRef, const FeatureCall&);
template void held_fourier_gradients<f16>(StreamRef, const FeatureCall&);

}  // namespace fovea::cuda
