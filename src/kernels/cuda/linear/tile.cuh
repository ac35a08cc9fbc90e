#pragma once
// Tiles of 64 x 64 in shared memory and their products: tensor cores for 16-bit elements, plain FMA
// for f32. Both hand out sums alike, so that kernels are written once.
//
// A block has four warps; warp w owns rows 16 w to 16 w + 15 of a product. With g = lane / 4 and
// t = lane % 4 a lane's sums[n][e] are rows 16 w + g (e < 2) and 16 w + g + 8, columns 8 n + 2 t
// and 8 n + 2 t + 1.

#include "kernels/cuda/tile/copy.cuh"
#include "kernels/cuda/tile/mma.cuh"

namespace fovea::cuda {

constexpr int kTileSide = 64;
constexpr int kTileThreads = 128;

// How an operand lies: A [m][k] and B [k][n] by rows, A [k][m] and B [n][k] by columns.
enum class Lies { by_rows, by_columns };

// The warp's number, by a shuffle: so the compiler knows that all lanes agree.
__device__ __forceinline__ int tile_warp() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
}

// A lane's place in a product: row(e) and column(n, e) of sums[n][e].
struct LanePlace {
  int warp, lane;
  __device__ __forceinline__ LanePlace()
      : warp(tile_warp()), lane(static_cast<int>(threadIdx.x) % 32) {}
  __device__ __forceinline__ int row(int e) const { return 16 * warp + lane / 4 + e / 2 * 8; }
  __device__ __forceinline__ int column(int n, int e) const { return 8 * n + lane % 4 * 2 + e % 2; }
};

// What is divided by sums is multiplied in: f16 would not hold it.
template <class T>
struct WideOf {
  using type = bf16;
};
template <>
struct WideOf<float> {
  using type = float;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T>
struct SquareTile {
  using Layout = Swizzled<kTileSide>;
  static constexpr unsigned kBytes = kTileSide * kTileSide * 2;

  __device__ static __forceinline__ void put8(unsigned tile, int row, int piece,
                                              const float (&v)[8]) {
    store8(shared_pointer<T>(tile + Layout::offset(row, piece)), v);
  }
  // Columns `column` (even) and the next.
  __device__ static __forceinline__ void put2(unsigned tile, int row, int column, float a,
                                              float b) {
    *shared_pointer<unsigned>(tile + Layout::offset(row, column / 8) +
                              static_cast<unsigned>(column % 8 * 2)) = pack<T>(a, b);
  }
  __device__ static __forceinline__ void get8(float (&v)[8], unsigned tile, int row, int piece) {
    load8(v, shared_pointer<const T>(tile + Layout::offset(row, piece)));
  }

  // sums += A B.
  template <Lies kA, Lies kB>
  __device__ static __forceinline__ void product(float (&sums)[8][4], unsigned a, unsigned b,
                                                 LanePlace at) {
    const unsigned a_lane = a + (kA == Lies::by_rows ? Layout::lane_by_rows(at.lane)
                                                     : Layout::lane_by_columns(at.lane));
    const unsigned b_lane = b + (kB == Lies::by_rows ? Layout::lane_by_rows(at.lane)
                                                     : Layout::lane_by_columns(at.lane));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned x[4], y[4];
      if constexpr (kA == Lies::by_rows)
        ldmatrix(x, Layout::block(a_lane, at.warp, k));
      else
        ldmatrix_transposed(x, Layout::block(a_lane, k, at.warp));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if constexpr (kB == Lies::by_rows)
          ldmatrix_transposed(y, Layout::block(b_lane, k, n));
        else
          ldmatrix(y, Layout::block(b_lane, n, k));
        mma<T>(sums[2 * n], x, y[0], y[1]);
        mma<T>(sums[2 * n + 1], x, y[2], y[3]);
      }
    }
  }

  // column[r] += sum over k of A[row(2 r)][k] by vector[k], for all lanes of a row; vector [64] f32
  // in shared memory, taken in two parts of 16 bits.
  template <Lies kA>
  __device__ static __forceinline__ void times_vector(float (&column)[2], unsigned a,
                                                      const float* vector, LanePlace at,
                                                      float by = 1) {
    const unsigned a_lane = a + (kA == Lies::by_rows ? Layout::lane_by_rows(at.lane)
                                                     : Layout::lane_by_columns(at.lane));
    float sums[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned x[4], y[2] = {};
      if constexpr (kA == Lies::by_rows)
        ldmatrix(x, Layout::block(a_lane, at.warp, k));
      else
        ldmatrix_transposed(x, Layout::block(a_lane, k, at.warp));
      // Column 0 of B is the vector, column 1 what 16 bits leave of it.
      if (at.lane < 8) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int first = 16 * k + 8 * half + at.lane % 4 * 2;
          float low = vector[first] * by, high = vector[first + 1] * by;
          if (at.lane >= 4) {
            low -= to_float(from_float<T>(low));
            high -= to_float(from_float<T>(high));
          }
          y[half] = pack<T>(low, high);
        }
      }
      mma<T>(sums, x, y[0], y[1]);
    }
    column[0] += __shfl_sync(~0u, sums[0] + sums[1], at.lane & ~3);
    column[1] += __shfl_sync(~0u, sums[2] + sums[3], at.lane & ~3);
  }
};

template <>
struct SquareTile<float> {
  static constexpr int kStride = kTileSide + 4;  // rows of 16-byte units, in different banks
  static constexpr unsigned kBytes = kTileSide * kStride * 4;

  __device__ static __forceinline__ float* at(unsigned tile, int row, int column) {
    return shared_pointer<float>(tile + static_cast<unsigned>((row * kStride + column) * 4));
  }
  __device__ static __forceinline__ void put8(unsigned tile, int row, int piece,
                                              const float (&v)[8]) {
    store8(at(tile, row, piece * 8), v);
  }
  __device__ static __forceinline__ void put2(unsigned tile, int row, int column, float a,
                                              float b) {
    *shared_pointer<float2>(tile + static_cast<unsigned>((row * kStride + column) * 4)) =
        make_float2(a, b);
  }
  __device__ static __forceinline__ void get8(float (&v)[8], unsigned tile, int row, int piece) {
    load8(v, at(tile, row, piece * 8));
  }

  template <Lies kA, Lies kB>
  __device__ static __forceinline__ void product(float (&sums)[8][4], unsigned a, unsigned b,
                                                 LanePlace p) {
    const int row = p.row(0), column = p.column(0, 0);
#pragma unroll 2
    for (int k = 0; k < kTileSide; ++k) {
      const float x0 = kA == Lies::by_rows ? *at(a, row, k) : *at(a, k, row);
      const float x1 = kA == Lies::by_rows ? *at(a, row + 8, k) : *at(a, k, row + 8);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int c = column + 8 * n;
        const float y0 = kB == Lies::by_rows ? *at(b, k, c) : *at(b, c, k);
        const float y1 = kB == Lies::by_rows ? *at(b, k, c + 1) : *at(b, c + 1, k);
        sums[n][0] = fmaf(x0, y0, sums[n][0]);
        sums[n][1] = fmaf(x0, y1, sums[n][1]);
        sums[n][2] = fmaf(x1, y0, sums[n][2]);
        sums[n][3] = fmaf(x1, y1, sums[n][3]);
      }
    }
  }

  template <Lies kA>
  __device__ static __forceinline__ void times_vector(float (&column)[2], unsigned a,
                                                      const float* vector, LanePlace p) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = p.row(2 * r);
      float sum = 0;
#pragma unroll 4
      for (int k = 0; k < kTileSide; ++k)
        sum = fmaf(kA == Lies::by_rows ? *at(a, row, k) : *at(a, k, row), vector[k], sum);
      column[r] += sum;
    }
  }
};

__device__ __forceinline__ void clear(float (&sums)[8][4]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[n][e] = 0;
  }
}
// Each of a lane's two rows times its factor.
__device__ __forceinline__ void scale_each_row(float (&sums)[8][4], const float (&by)[2]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[n][e] *= by[e / 2];
  }
}

// Rows of one head as a kernel walks them; strides in elements.
struct TileRows {
  void* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;
  int count = 0, width = 0;
  bool packed = false;  // 16-byte accesses allowed

  TileRows() = default;
  explicit TileRows(const View& x)
      : data(x.data),
        batch(x.stride[0]),
        head(x.stride[1]),
        row(x.stride[2]),
        count(static_cast<int>(x.dim[2])),
        width(static_cast<int>(x.dim[3])) {
    packed = reinterpret_cast<unsigned long long>(data) % 16 == 0 && width % 8 == 0 &&
             (x.dim[0] == 1 || batch % 8 == 0) && (x.dim[1] == 1 || head % 8 == 0) &&
             (x.dim[2] == 1 || row % 8 == 0);
  }
  template <class T>
  __device__ __forceinline__ T* at(int b, int h) const {
    return static_cast<T*>(data) + b * batch + h * head;
  }
};

// Rows first to first + 63, columns column to column + 63 of a head, each row times factor(row);
// rows past the end or of factor 0 are zero and not read, columns past the end are zero.
// E: what the tile holds.
template <class T, class E = T, class F>
__device__ __forceinline__ void load_tile(unsigned tile, const TileRows& rows, const T* head,
                                          int first, int column, F factor) {
#pragma unroll
  for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int row = unit / 8, piece = unit % 8, token = first + row, c = column + piece * 8;
    float v[8] = {};
    const float by = token < rows.count && c < rows.width ? factor(token) : 0.0f;
    if (by != 0) {
      const T* from = head + token * rows.row + c;
      if (rows.packed) {
        load8(v, from);
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          v[e] = c + e < rows.width ? to_float(from[e]) : 0.0f;
      }
#pragma unroll
      for (int e = 0; e < 8; ++e)
        v[e] *= by;
    }
    SquareTile<E>::put8(tile, row, piece, v);
  }
}

// A whole tile of a padded matrix in scratch memory, rows of `stride` elements.
template <class T>
__device__ __forceinline__ void load_padded(unsigned tile, const T* from, std::int64_t stride) {
#pragma unroll
  for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * kTileThreads;
    float v[8];
    load8(v, from + unit / 8 * stride + unit % 8 * 8);
    SquareTile<T>::put8(tile, unit / 8, unit % 8, v);
  }
}

// ChunkSums to a tile, to be read by all after a barrier.
template <class T>
__device__ __forceinline__ void put_sums(unsigned tile, const float (&sums)[8][4], LanePlace at) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    SquareTile<T>::put2(tile, at.row(0), at.column(n, 0), sums[n][0], sums[n][1]);
    SquareTile<T>::put2(tile, at.row(2), at.column(n, 2), sums[n][2], sums[n][3]);
  }
}

// ChunkSums to rows first to first + 63 of a head, through a tile of Out; every thread calls it,
// and it begins with a barrier. `add`: on top of what stands there.
template <class Out>
__device__ __forceinline__ void store_sums(unsigned tile, const TileRows& rows, Out* head,
                                           int first, int column, const float (&sums)[8][4],
                                           LanePlace at, bool add) {
  __syncthreads();
  put_sums<Out>(tile, sums, at);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int row = unit / 8, token = first + row, c = column + unit % 8 * 8;
    if (token >= rows.count || c >= rows.width) continue;
    float v[8];
    SquareTile<Out>::get8(v, tile, row, unit % 8);
    Out* to = head + token * rows.row + c;
    if (rows.packed) {
      if (add) {
        float past[8];
        load8(past, to);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          v[e] += past[e];
      }
      store8(to, v);
      continue;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (c + e < rows.width) to[e] = from_float<Out>(add ? v[e] + to_float(to[e]) : v[e]);
    }
  }
}

}  // namespace fovea::cuda
