#pragma once
// Projections of rows on random directions, a tile of 64 rows at a time.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/cuda/linear/tile.cuh"
#include "kernels/feature_map.h"

namespace fovea::cuda {

constexpr int kMostWidthTiles = 4;  // rows of up to 256 numbers

struct FeatureCall {
  TileRows x, y, dx;  // y and dy: [B,H,N,m]
  const void* dy = nullptr;
  bool dy_is_float = false;
  Tokens tokens;
  const float* w = nullptr;     // [G,R,D]
  const void* sigma = nullptr;  // T [H,D]
  std::int64_t sigma_row = 0;
  const std::int32_t* entries = nullptr;
  float *exponent = nullptr, *shift = nullptr;  // [B,H,N]
  float* found = nullptr;                       // [B,H,N]: of Stabiliser::shared; may be shift
  bool knows_shared = false;                    // it stands there
  float* partial = nullptr;                     // of dsigma: [fourier_partials, H, D]
  int batch = 0, heads = 0, x_heads = 0, rows = 0, width = 0, directions = 0, features = 0,
      groups = 1;
  FeatureKind kind = FeatureKind::softmax;
  Stabiliser stabiliser = Stabiliser::none;
  float scale = 1, eps = 0, offset = 0, temperature = 1;

  __host__ __device__ int group() const { return heads / x_heads; }
  __host__ __device__ int tiles() const { return (rows + kTileSide - 1) / kTileSide; }
  __host__ __device__ int width_tiles() const { return (width + kTileSide - 1) / kTileSide; }
  __host__ __device__ int slabs() const { return (directions + kTileSide - 1) / kTileSide; }
  __device__ const float* matrix(int h) const {
    const int g = entries != nullptr ? entries[h] : h / (heads / groups);
    return w + std::int64_t{g} * directions * width;
  }
  __device__ std::int64_t row_of(int b, int h) const {
    return (std::int64_t{b} * heads + h) * rows;
  }
  // dy of a row and two neighbouring columns, `real` of which exist.
  template <class T>
  __device__ float2 gradient(std::int64_t row, int column, bool first, bool second) const {
    const std::int64_t at = row * features + column;
    float2 out = {};
    if (dy_is_float) {
      const float* from = static_cast<const float*>(dy) + at;
      if (first) out.x = from[0];
      if (second) out.y = from[1];
    } else {
      const T* from = static_cast<const T*>(dy) + at;
      if (first) out.x = to_float(from[0]);
      if (second) out.y = to_float(from[1]);
    }
    return out;
  }
};

// Which 64 rows of which of `heads` heads a block has.
struct RowPlace {
  int tile, h, b;
  __device__ __forceinline__ RowPlace(const FeatureCall& call, int heads) {
    const int at = static_cast<int>(blockIdx.x);
    tile = at % call.tiles();
    h = at / call.tiles() % heads;
    b = at / call.tiles() / heads;
  }
};

// Directions 64 slab to 64 slab + 63, columns 64 block to 64 block + 63 of a matrix, in E. kRest:
// what E's rounding leaves of them.
template <class E, bool kRest = false>
__device__ __forceinline__ void load_directions(unsigned tile, const FeatureCall& call,
                                                const float* matrix, int slab, int block) {
#pragma unroll
  for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int row = unit / 8, direction = slab * kTileSide + row,
              column = block * kTileSide + unit % 8 * 8;
    float v[8] = {};
    if (direction < call.directions) {
      const float* from = matrix + std::int64_t{direction} * call.width + column;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (column + e < call.width) v[e] = from[e];
        if constexpr (kRest) v[e] -= to_float(from_float<E>(v[e]));
      }
    }
    SquareTile<E>::put8(tile, row, unit % 8, v);
  }
}

// sums = <x_i, w_r> of a slab of directions; x_tiles hold the rows, w_tile (two tiles of T for 16
// bits) is overwritten. 16-bit directions are taken in two parts, since exponents want their sums
// to more than 16 bits.
template <class T>
__device__ __forceinline__ void project_slab(float (&sums)[8][4], unsigned x_tiles, unsigned w_tile,
                                             const FeatureCall& call, const float* matrix, int slab,
                                             LanePlace at) {
  using Tile = SquareTile<T>;
  clear(sums);
  for (int block = 0; block < call.width_tiles(); ++block) {
    __syncthreads();
    load_directions<T>(w_tile, call, matrix, slab, block);
    if constexpr (sizeof(T) == 2)
      load_directions<T, true>(w_tile + Tile::kBytes, call, matrix, slab, block);
    __syncthreads();
    const unsigned x_tile = x_tiles + static_cast<unsigned>(block) * Tile::kBytes;
    Tile::template product<Lies::by_rows, Lies::by_columns>(sums, x_tile, w_tile, at);
    if constexpr (sizeof(T) == 2)
      Tile::template product<Lies::by_rows, Lies::by_columns>(sums, x_tile, w_tile + Tile::kBytes,
                                                              at);
  }
}

// Sum of squares of the tiles' rows; `squares` [64] in shared memory, between barriers. Two threads
// a row.
template <class T>
__device__ __forceinline__ void row_squares(float* squares, unsigned x_tiles, int blocks) {
  const int row = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
  float sum = 0;
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      float v[8];
      SquareTile<T>::get8(v, x_tiles + static_cast<unsigned>(block) * SquareTile<T>::kBytes, row,
                          half * 4 + piece);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        sum = fmaf(v[e], v[e], sum);
    }
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  if (half == 0) squares[row] = sum;
}

// e^x: to the last bits for f32, by the special-function unit for what is rounded to 16 bits.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return exp2_fast(x * 1.4426950408889634f);
}

using FeatureStep = void(StreamRef, const FeatureCall&);
void random_features(StreamRef, DType, const FeatureCall&);
void random_feature_gradients(StreamRef, DType, const FeatureCall&);
void fourier_features(StreamRef, DType, const FeatureCall&);
// How many pieces of dsigma the gradients write to call.partial.
std::int64_t fourier_partials(DType, const FeatureCall&);
void fourier_feature_gradients(StreamRef, DType, const FeatureCall&);

template <int kCount>
struct WidthTiles {
  static constexpr int value = kCount;
};

// Calls fn with the number of tiles of a row: 1, 2 or 4.
template <class F>
void for_width_tiles(const FeatureCall& call, F&& fn) {
  switch (call.width_tiles()) {
    case 1:
      return fn(WidthTiles<1>{});
    case 2:
      return fn(WidthTiles<2>{});
    default:
      return fn(WidthTiles<4>{});
  }
}

}  // namespace fovea::cuda
