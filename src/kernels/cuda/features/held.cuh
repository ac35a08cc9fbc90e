#pragma once
// Products of 16-bit rows with random directions that a block holds in shared memory, split into
// 16-bit parts, while it walks over rows: for rows of up to 64 numbers and up to 256 directions.
//
// Four warps take 64 rows at a time, 16 each, straight from memory to registers and back. For that
// the columns of a direction and the directions of a slab stand in shared memory in another order:
// in the order of places a lane (t = lane % 4) has the columns 2 t and 2 t + 1 of every block of
// eight, of operands and of results (mma.cuh); those of four blocks are made eight numbers that lie
// side by side in memory. Sums do not ask for the order of what they add, and all agree on it.

#include "kernels/cuda/features/project.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

constexpr int kHeldSlabs = 4;                                     // of 64 directions
constexpr int kGroupWarps = 4, kGroupThreads = 32 * kGroupWarps;  // that take 64 rows together
constexpr unsigned kHeldTileBytes = SquareTile<bf16>::kBytes;

// Which number, a column or a direction of a slab, stands at a place of 0 to 63, if a lane is to
// have `kSide` (4 or 8) of them side by side: those of places n = kSide / 2 i to the next, each 2 t
// and 2 t + 1, are numbers 4 kSide i + kSide t and on.
template <int kSide>
__device__ __forceinline__ int number_at(int place) {
  constexpr int kRun = 4 * kSide;
  return place / kRun * kRun + place % 8 / 2 * kSide + place / 8 % (kSide / 2) * 2 + place % 2;
}

// One group of heads that share directions, and the rows of it that a group of threads walks: every
// so many units of 64 rows.
struct HeldPlace {
  int group, heads;  // of the directions; how many heads have them
  int units, unit, step;
  __device__ __forceinline__ explicit HeldPlace(const FeatureCall& call) {
    const int teams = static_cast<int>(blockDim.x) / kGroupThreads;
    group = static_cast<int>(blockIdx.y);
    heads = call.heads / static_cast<int>(gridDim.y);
    units = call.batch * heads * call.tiles();
    unit = static_cast<int>(blockIdx.x) * teams + tile_warp() / 4;
    step = static_cast<int>(gridDim.x) * teams;
  }
};

// A lane's two of 64 rows.
struct HeldRows {
  int b = 0, h = 0, token[2] = {};
  bool real[2] = {};  // exists and is valid
  __device__ __forceinline__ HeldRows(const FeatureCall& call, const HeldPlace& place, int unit) {
    const int tile = unit % call.tiles(), head = unit / call.tiles();
    h = place.group * place.heads + head % place.heads;
    b = head / place.heads;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      token[r] =
          tile * kTileSide + tile_warp() % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * r;
      real[r] = unit < place.units && token[r] < call.rows && call.tokens.is_valid(b, token[r]);
    }
  }
};

// Operand A of a product: the lane's two rows, zero where they are not real.
template <class T>
__device__ __forceinline__ void load_held_rows(unsigned (&a)[4][4], const FeatureCall& call,
                                               const HeldRows& rows) {
  const T* x = call.x.at<const T>(rows.b, rows.h / call.group());
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = 32 * half + static_cast<int>(threadIdx.x) % 4 * 8;
      uint4 piece = {};
      if (rows.real[r] && column < call.width)
        piece = *reinterpret_cast<const uint4*>(x + rows.token[r] * call.x.row + column);
      a[2 * half][r] = piece.x, a[2 * half][2 + r] = piece.y;
      a[2 * half + 1][r] = piece.z, a[2 * half + 1][2 + r] = piece.w;
    }
  }
}

// Numbers 2 word and 2 word + 1 of the eight of a row's half.
template <class T>
__device__ __forceinline__ float2 held_numbers(const unsigned (&a)[4][4], int r, int half,
                                               int word) {
  return unpack<T>(a[2 * half + word / 2][word % 2 * 2 + r]);
}

__device__ __forceinline__ void copy_held_rows(unsigned (&to)[4][4], const unsigned (&from)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[k][i] = from[k][i];
  }
}

// Sums of squares of both rows.
template <class T>
__device__ __forceinline__ void held_squares(float (&squares)[2], const unsigned (&a)[4][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 x = held_numbers<T>(a, r, i / 4, i % 4);
      sum = fmaf(x.x, x.x, sum);
      sum = fmaf(x.y, x.y, sum);
    }
    squares[r] = quad_sum(sum);
  }
}
// |x^|^2 / 2 of both rows.
template <class T>
__device__ __forceinline__ void held_norms(float (&norm)[2], const unsigned (&a)[4][4],
                                           float scale) {
  held_squares<T>(norm, a);
  norm[0] *= 0.5f * scale * scale;
  norm[1] *= 0.5f * scale * scale;
}

// Directions, each column times factor(column), in kParts of E: each rounds what those before
// leave. They stand in `slabs` tiles from `tiles` on, one part behind the other; kSide of the
// directions, 8 columns lie side by side. For the whole block; ends with a barrier.
template <class E, int kParts, int kSide, class F>
__device__ __forceinline__ void hold_directions(unsigned tiles, int slabs, const FeatureCall& call,
                                                const float* matrix, F factor) {
  for (int unit = static_cast<int>(threadIdx.x); unit < slabs * kTileSide * 8;
       unit += static_cast<int>(blockDim.x)) {
    const int row = unit / 8, piece = unit % 8;
    const int direction = row / kTileSide * kTileSide + number_at<kSide>(row % kTileSide);
    float v[8] = {};
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      const int column = number_at<8>(piece * 8 + e);
      if (direction >= call.directions || column >= call.width) continue;
      const float2 two =
          *reinterpret_cast<const float2*>(matrix + std::int64_t{direction} * call.width + column);
      v[e] = two.x * factor(column), v[e + 1] = two.y * factor(column + 1);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      SquareTile<E>::put8(tiles + static_cast<unsigned>(part * slabs) * kHeldTileBytes, row, piece,
                          v);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        v[e] -= to_float(from_float<E>(v[e]));
    }
  }
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_written();
#endif
  __syncthreads();
}

// Starts p = rows by one slab of directions, whose parts stand `step` bytes apart. Where products
// run in the background they end with end_products.
template <class T, int kParts>
__device__ __forceinline__ void start_products(float (&p)[8][4], const unsigned (&x)[4][4],
                                               unsigned tile, unsigned step) {
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_first<T, Walk::along_k>(p, x[0], operand_at(tile));
#pragma unroll
  for (int i = 1; i < 4 * kParts; ++i)
    wgmma<T, Walk::along_k>(
        p, x[i % 4],
        operand_at(tile + static_cast<unsigned>(i / 4) * step + static_cast<unsigned>(i % 4) * 32));
#else
  using Layout = Swizzled<kTileSide>;
  const unsigned lane = Layout::lane_by_columns(static_cast<int>(threadIdx.x) % 32);
#pragma unroll
  for (int n = 0; n < 8; ++n)
    p[n][0] = p[n][1] = p[n][2] = p[n][3] = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        unsigned w[4];
        ldmatrix(w, Layout::block(tile + static_cast<unsigned>(part) * step + lane, n, k));
        mma<T>(p[2 * n], x[k], w[0], w[1]);
        mma<T>(p[2 * n + 1], x[k], w[2], w[3]);
      }
    }
  }
#endif
}

// Starts dx += g by one slab of directions, summed over the directions.
template <class E>
__device__ __forceinline__ void start_gradients(float (&dx)[8][4], const unsigned (&g)[4][4],
                                                unsigned tile) {
#if FOVEA_WARPGROUP_PRODUCTS
#pragma unroll
  for (int k = 0; k < 4; ++k)
    wgmma<E, Walk::across_k>(dx, g[k], operand_at(tile + static_cast<unsigned>(k) * 2048));
#else
  using Layout = Swizzled<kTileSide>;
  const unsigned lane = Layout::lane_by_rows(static_cast<int>(threadIdx.x) % 32);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      unsigned w[4];
      ldmatrix_transposed(w, Layout::block(tile + lane, k, n));
      mma<E>(dx[2 * n], g[k], w[0], w[1]);
      mma<E>(dx[2 * n + 1], g[k], w[2], w[3]);
    }
  }
#endif
}

// A lane's gradients of a slab of features, of type G: four from feature 16 q + 4 (lane % 4) on of
// each of its rows, zero where there are none. They stay as they were read until they are used: no
// one waits for them before.
template <class G>
struct Slab {
  using Four = uint2;
  Four four[2][4];
  __device__ __forceinline__ float at(int r, int q, int i) const {
    const float2 two = unpack<G>(i < 2 ? four[r][q].x : four[r][q].y);
    return i % 2 == 0 ? two.x : two.y;
  }
};
template <>
struct Slab<float> {
  using Four = float4;
  Four four[2][4];
  __device__ __forceinline__ float at(int r, int q, int i) const {
    const float4& v = four[r][q];
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
};

// Those of directions of `slab`, `behind` features further.
template <class G>
__device__ __forceinline__ void load_slab(Slab<G>& dy, const FeatureCall& call,
                                          const HeldRows& rows, int slab, int behind) {
  using Four = typename Slab<G>::Four;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const G* from = static_cast<const G*>(call.dy) +
                    (call.row_of(rows.b, rows.h) + rows.token[r]) * call.features + behind;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int column = slab * kTileSide + 16 * q + static_cast<int>(threadIdx.x) % 4 * 4;
      const bool exists = rows.real[r] && column < call.directions;
      dy.four[r][q] = exists ? *reinterpret_cast<const Four*>(from + column) : Four{};
    }
  }
}

// Whether rows and directions are such that the kernels of held directions take them.
inline bool fits_held(const FeatureCall& call) {
  return call.width <= kTileSide && call.x.packed && call.slabs() <= kHeldSlabs &&
         call.directions % 8 == 0 && call.y.packed && call.scale > 0 &&
         reinterpret_cast<unsigned long long>(call.w) % 8 == 0;
}
inline bool fits_held_gradients(const FeatureCall& call) {
  return fits_held(call) && call.dx.packed && call.heads == call.x_heads &&
         reinterpret_cast<unsigned long long>(call.dy) % 16 == 0;
}

// Of RFA's map, whose directions take three parts: all of f32.
constexpr int kFourierSlabs = 2;
inline bool fits_held_fourier(const FeatureCall& call) {
  return call.width <= kTileSide && call.x.packed && call.slabs() <= kFourierSlabs &&
         call.directions % 8 == 0 && call.y.packed &&
         reinterpret_cast<unsigned long long>(call.w) % 8 == 0;
}
inline bool fits_held_fourier_gradients(const FeatureCall& call) {
  return fits_held_fourier(call) && (call.dx.data == nullptr || call.dx.packed) &&
         call.heads == call.x_heads && reinterpret_cast<unsigned long long>(call.dy) % 16 == 0;
}

// Blocks that walk over rows, `groups` of them side by side, of `teams` groups of threads: their
// number decides nothing but the time.
inline dim3 held_grid(const FeatureCall& call, int groups, int teams, int at_once = 1) {
  const std::int64_t units = std::int64_t{call.batch} * (call.heads / groups) * call.tiles();
  const int all = at_once * multiprocessors(), most = all > groups ? all / groups : 1;
  const unsigned blocks = blocks_for(units, teams);
  return dim3(blocks < static_cast<unsigned>(most) ? blocks : static_cast<unsigned>(most),
              static_cast<unsigned>(groups));
}

// The features, or the largest product of each row to shift. T: bf16 or f16.
template <class T>
void held_features(StreamRef stream, const FeatureCall& call, bool maxima);
template <class T>
void held_gradients(StreamRef stream, const FeatureCall& call);
template <class T>
void held_fourier(StreamRef stream, const FeatureCall& call);
template <class T>
void held_fourier_gradients(StreamRef stream, const FeatureCall& call);

}  // namespace fovea::cuda
