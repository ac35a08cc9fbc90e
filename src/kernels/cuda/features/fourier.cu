// RFA's sines and cosines of random projections, forward and backward, in f32 whatever the type:
// the angles are sums of rounded numbers that 16 bits would blur. Heads of models: held_fourier.cu.

#include "kernels/cuda/features/angles.cuh"
#include "kernels/cuda/features/held.cuh"

namespace fovea::cuda {

namespace {

using Tile = SquareTile<float>;

// x_tiles become sigma x~ / temperature of head h; `inverse` [64] 1 / ((|x| + eps) temperature) and
// `norms` [64] |x|, in shared memory. Ends with a barrier.
template <class T>
__device__ __forceinline__ void load_rows(unsigned x_tiles, float* inverse, float* norms,
                                          const FeatureCall& call, const T* x, int b, int h,
                                          int first) {
  const int blocks = call.width_tiles();
  __syncthreads();
  for (int block = 0; block < blocks; ++block) {
    load_tile<T, float>(x_tiles + static_cast<unsigned>(block) * Tile::kBytes, call.x, x, first,
                        block * kTileSide,
                        [&](int i) { return call.tokens.is_valid(b, i) ? 1.0f : 0.0f; });
  }
  __syncthreads();
  row_squares<float>(norms, x_tiles, blocks);
  __syncthreads();
  if (threadIdx.x < kTileSide) {
    const float norm = sqrtf(norms[threadIdx.x]);
    norms[threadIdx.x] = norm;
    inverse[threadIdx.x] = 1.0f / ((norm + kNormEps) * call.temperature);
  }
  __syncthreads();
  const T* sigma = static_cast<const T*>(call.sigma) + h * call.sigma_row;
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
      const int unit = static_cast<int>(threadIdx.x) + i * kTileThreads;
      const int row = unit / 8, column = block * kTileSide + unit % 8 * 8;
      float v[8];
      const unsigned tile = x_tiles + static_cast<unsigned>(block) * Tile::kBytes;
      Tile::get8(v, tile, row, unit % 8);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        v[e] *= column + e < call.width ? inverse[row] * to_float(sigma[column + e]) : 0.0f;
      Tile::put8(tile, row, unit % 8, v);
    }
  }
  __syncthreads();
}

// 64 rows of one head; reads x once, the directions once from L2, writes the features once.
template <class T>
__global__ void __launch_bounds__(kTileThreads, 3)
    fourier_features_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned x_tiles = tile_base(),
                 w_tile = x_tiles + static_cast<unsigned>(call.width_tiles()) * Tile::kBytes,
                 out_tile = w_tile + Tile::kBytes;
  float* inverse = shared_pointer<float>(out_tile + Tile::kBytes);
  const LanePlace at;
  const RowPlace place(call, call.heads);
  const int b = place.b, h = place.h, first = place.tile * kTileSide;
  load_rows<T>(x_tiles, inverse, inverse + kTileSide, call, call.x.at<const T>(b, h / call.group()),
               b, h, first);
  bool valid[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    valid[r] = token < call.rows && call.tokens.is_valid(b, token);
  }
  TileRows half = call.y;
  half.width = call.directions;
  half.packed = half.packed && call.directions % 8 == 0;
  for (int slab = 0; slab < call.slabs(); ++slab) {
    float u[8][4], cosine[8][4];
    project_slab<float>(u, x_tiles, w_tile, call, call.matrix(h), slab, at);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float s = 0, c = 0;
        if (valid[e / 2]) sine_cosine(u[n][e], s, c);
        u[n][e] = s;
        cosine[n][e] = c;
      }
    }
    T* y = half.at<T>(b, h);
    store_sums<T>(out_tile, half, y, first, slab * kTileSide, u, at, false);
    store_sums<T>(out_tile, half, y + call.directions, first, slab * kTileSide, cosine, at, false);
  }
}

// 64 rows of one of x's heads, with all heads that map it. Makes the angles again; writes dx and
// its part of dsigma once.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks == 1 ? 2 : 1)
    fourier_gradients_kernel(const __grid_constant__ FeatureCall call) {
  const unsigned x_tiles = tile_base(), w_tile = x_tiles + kBlocks * Tile::kBytes,
                 g_tile = w_tile + Tile::kBytes;
  float* inverse = shared_pointer<float>(g_tile + Tile::kBytes);
  float* norms = inverse + kTileSide;
  const LanePlace at;
  const RowPlace place(call, call.x_heads);
  const int b = place.b, hx = place.h, first = place.tile * kTileSide;
  const T* x = call.x.at<const T>(b, hx);
  bool valid[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    valid[r] = token < call.rows && call.tokens.is_valid(b, token);
  }
  float dx[kBlocks][8][4] = {};
  for (int h = hx * call.group(); h < (hx + 1) * call.group(); ++h) {
    const float* matrix = call.matrix(h);
    const T* sigma = static_cast<const T*>(call.sigma) + h * call.sigma_row;
    load_rows<T>(x_tiles, inverse, norms, call, x, b, h, first);
    float g[kBlocks][8][4] = {};  // of sigma x~ / t
    for (int slab = 0; slab < call.slabs(); ++slab) {
      float u[8][4];
      project_slab<float>(u, x_tiles, w_tile, call, matrix, slab, at);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int column = slab * kTileSide + at.column(n, 0);
        const bool one = column < call.directions, two = column + 1 < call.directions;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float2 sines = {}, cosines = {};
          if (valid[r]) {
            const std::int64_t row = call.row_of(b, h) + first + at.row(2 * r);
            sines = call.gradient<T>(row, column, one, two);
            cosines = call.gradient<T>(row, call.directions + column, one, two);
          }
          float s, c;
          sine_cosine(u[n][2 * r], s, c);
          u[n][2 * r] = sines.x * c - cosines.x * s;
          sine_cosine(u[n][2 * r + 1], s, c);
          u[n][2 * r + 1] = sines.y * c - cosines.y * s;
        }
      }
      put_sums<float>(g_tile, u, at);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        __syncthreads();
        load_directions<float>(w_tile, call, matrix, slab, block);
        __syncthreads();
        Tile::product<Lies::by_rows, Lies::by_rows>(g[block], g_tile, w_tile, at);
      }
    }

    // x and sigma of a lane's columns, again; <x, sigma g> of its rows.
    const auto own = [&](int block, int n, int e) {
      const int column = block * kTileSide + at.column(n, e);
      return valid[e / 2] && column < call.width
                 ? to_float(x[(first + at.row(e)) * call.x.row + column])
                 : 0.0f;
    };
    const auto factor = [&](int block, int n, int e) {
      const int column = block * kTileSide + at.column(n, e);
      return column < call.width ? to_float(sigma[column]) : 0.0f;
    };
    float along[2] = {}, back[2];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          along[e / 2] += own(block, n, e) * g[block][n][e] * factor(block, n, e);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = at.row(2 * r);
      const float norm = norms[row];
      along[r] = quad_sum(along[r]);
      back[r] = norm > 0 ? along[r] * inverse[row] / (norm * (norm + kNormEps)) : 0.0f;
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float by = inverse[at.row(e)], mine = own(block, n, e);
          dx[block][n][e] += g[block][n][e] * factor(block, n, e) * by - mine * back[e / 2];
          g[block][n][e] *= mine * by;
        }
      }
      if (call.partial == nullptr) continue;
      __syncthreads();
      put_sums<float>(g_tile, g[block], at);
      __syncthreads();
      const int column = block * kTileSide + static_cast<int>(threadIdx.x);
      if (threadIdx.x < kTileSide && column < call.width) {
        float sum = 0;
        for (int row = 0; row < kTileSide; ++row)
          sum += *Tile::at(g_tile, row, static_cast<int>(threadIdx.x));
        const std::int64_t part = std::int64_t{b} * call.tiles() + place.tile;
        call.partial[(part * call.heads + h) * call.width + column] = sum;
      }
    }
  }
  if (call.dx.data == nullptr) return;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        dx[block][n][e] = valid[e / 2] ? dx[block][n][e] : 0.0f;
    }
    if (block < call.width_tiles())
      store_sums<T>(w_tile, call.dx, call.dx.at<T>(b, hx), first, block * kTileSide, dx[block], at,
                    false);
  }
}

template <class T, int kBlocks>
void launch_gradients(StreamRef stream, const FeatureCall& call) {
  const unsigned bytes = (kBlocks + 2) * Tile::kBytes + 2 * kTileSide * sizeof(float) + 1024;
  const auto blocks = static_cast<unsigned>(std::int64_t{call.batch} * call.x_heads * call.tiles());
  launch_shared(stream, "features_backward", fourier_gradients_kernel<T, kBlocks>, blocks,
                kTileThreads, bytes, call);
}

}  // namespace

void fourier_features(StreamRef stream, DType dtype, const FeatureCall& call) {
  for_float(dtype, "features_forward", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      if (fits_held_fourier(call)) return held_fourier<T>(stream, call);
    }
    const unsigned bytes = static_cast<unsigned>(call.width_tiles() + 2) * Tile::kBytes +
                           2 * kTileSide * sizeof(float) + 1024;
    const auto blocks = static_cast<unsigned>(std::int64_t{call.batch} * call.heads * call.tiles());
    launch_shared(stream, "features_forward", fourier_features_kernel<T>, blocks, kTileThreads,
                  bytes, call);
  });
}

std::int64_t fourier_partials(DType dtype, const FeatureCall& call) {
  const bool held = size_of(dtype) == 2 && fits_held_fourier_gradients(call);
  return std::int64_t{call.batch} * call.tiles() * (held ? kGroupWarps : 1);
}

void fourier_feature_gradients(StreamRef stream, DType dtype, const FeatureCall& call) {
  for_float(dtype, "features_backward", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      if (fits_held_fourier_gradients(call)) return held_fourier_gradients<T>(stream, call);
    }
    if (call.width_tiles() == 1)
      launch_gradients<T, 1>(stream, call);
    else
      launch_gradients<T, kMostWidthTiles>(stream, call);
  });
}

}  // namespace fovea::cuda
