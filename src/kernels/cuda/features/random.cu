// Positive random features, forward.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"
#include "kernels/cuda/linear/run.cuh"

namespace fovea::cuda {

namespace {

constexpr int kOwnSlabs = 4;  // whose projections stay in registers: up to 256 directions

enum class Makes { features, maxima };  // maxima: shift = the largest product of each row

template <class T>
__device__ __forceinline__ float feature(const FeatureCall& call, float p, const RowScales& rows,
                                         int r) {
  if (!rows.valid[r]) return 0;
  if (call.kind == FeatureKind::relu_random) return fmaxf(p, 0.0f) + call.offset;
  float z = p - rows.minus[r];
  if (call.stabiliser == Stabiliser::constant) z = fminf(z, kFeatureClamp) - rows.shift[r];
  return exponential<T>(z) + rows.extra[r];
}

// Features of a slab of directions, or of their opposites, to y.
template <class T>
__device__ __forceinline__ void store_slab(unsigned tile, const FeatureCall& call,
                                           const float (&p)[8][4], const RowScales& rows, int b,
                                           int h, int first, int slab, LanePlace at) {
  TileRows half = call.y;
  half.width = call.directions;
  half.packed = half.packed && call.directions % 8 == 0;
  float out[8][4];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      out[n][e] = feature<T>(call, p[n][e], rows, e / 2);
  }
  store_sums<T>(tile, half, half.at<T>(b, h), first, slab * kTileSide, out, at, false);
  if (call.kind != FeatureKind::softmax_pair) return;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      out[n][e] = feature<T>(call, -p[n][e], rows, e / 2);
  }
  store_sums<T>(tile, half, half.at<T>(b, h) + call.directions, first, slab * kTileSide, out, at,
                false);
}

// 64 rows of one head. Reads x once and the directions once (twice where there are more than 256),
// from L2; writes the features once.
template <class T, Makes kMakes, bool kHeld>
__global__ void __launch_bounds__(kTileThreads, kHeld ? 2 : 3)
    random_features_kernel(const __grid_constant__ FeatureCall call) {
  using Tile = SquareTile<T>;
  const int blocks = call.width_tiles(), slabs = call.slabs();
  const unsigned x_tiles = tile_base(),
                 w_tile = x_tiles + static_cast<unsigned>(blocks) * Tile::kBytes,
                 out_tile = w_tile + (sizeof(T) == 2 ? 2 : 1) * Tile::kBytes;
  float* squares = shared_pointer<float>(out_tile + Tile::kBytes);
  const LanePlace at;
  const RowPlace place(call, call.heads);
  const int b = place.b, h = place.h, first = place.tile * kTileSide;
  const float* matrix = call.matrix(h);
  for (int block = 0; block < blocks; ++block) {
    load_tile<T>(x_tiles + static_cast<unsigned>(block) * Tile::kBytes, call.x,
                 call.x.at<const T>(b, h / call.group()), first, block * kTileSide,
                 [&](int i) { return call.tokens.is_valid(b, i) ? 1.0f : 0.0f; });
  }
  __syncthreads();
  row_squares<T>(squares, x_tiles, blocks);

  float p[kHeld ? kOwnSlabs : 1][8][4], most[2] = {-kInfinity, -kInfinity};
  const auto compute = [&](float(&sums)[8][4], int slab, bool look) {
    project_slab<T>(sums, x_tiles, w_tile, call, matrix, slab, at);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[n][e] *= call.scale;
        if (!look || slab * kTileSide + at.column(n, e) >= call.directions) continue;
        const float x = call.kind == FeatureKind::softmax_pair ? fabsf(sums[n][e]) : sums[n][e];
        most[e / 2] = fmaxf(most[e / 2], x);
      }
    }
  };
  if constexpr (kHeld) {
#pragma unroll
    for (int slab = 0; slab < kOwnSlabs; ++slab) {
      if (slab < slabs) compute(p[slab], slab, true);
    }
  } else if (kMakes == Makes::maxima || call.kind != FeatureKind::relu_random) {
    for (int slab = 0; slab < slabs; ++slab)
      compute(p[0], slab, true);
  }
  most[0] = quad_max(most[0]);
  most[1] = quad_max(most[1]);
  if constexpr (kMakes == Makes::maxima) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = first + at.row(2 * r);
      if (at.lane % 4 == 0 && token < call.rows)
        call.found[call.row_of(b, h) + token] =
            call.tokens.is_valid(b, token) ? most[r] : -kInfinity;
    }
    return;
  }
  __syncthreads();
  float norm[2];
  const int token[2] = {first + at.row(0), first + at.row(2)};
#pragma unroll
  for (int r = 0; r < 2; ++r)
    norm[r] = 0.5f * call.scale * call.scale * squares[at.row(2 * r)];
  const RowScales rows = scale_rows(call, most, norm, b, h, token, at.lane);
  if constexpr (kHeld) {
#pragma unroll
    for (int slab = 0; slab < kOwnSlabs; ++slab) {
      if (slab < slabs) store_slab<T>(out_tile, call, p[slab], rows, b, h, first, slab, at);
    }
  } else {
    for (int slab = 0; slab < slabs; ++slab) {
      compute(p[0], slab, false);
      store_slab<T>(out_tile, call, p[0], rows, b, h, first, slab, at);
    }
  }
}

// found becomes the largest of each row's segment, one head of one sample a block.
__global__ void __launch_bounds__(kRunThreads)
    segment_stabiliser_kernel(const __grid_constant__ FeatureCall call) {
  float* rows = call.found + std::int64_t{blockIdx.x} * call.rows;
  segment_maxima(call.tokens, static_cast<int>(blockIdx.x) / call.heads, call.rows,
                 [&](int token) -> float& { return rows[token]; });
}

// A piece of the rows of one head of one sample a block.
struct RowPiece {
  int head, piece, first, end;
  __device__ __forceinline__ RowPiece(const FeatureCall& call, int pieces)
      : head(static_cast<int>(blockIdx.x) / pieces),
        piece(static_cast<int>(blockIdx.x) % pieces),
        first(piece * kRunPiece),
        end(min(first + kRunPiece, call.rows)) {}
};

// The largest of each piece, [B H, pieces].
__global__ void __launch_bounds__(kRunThreads)
    piece_maxima_kernel(float* maxima, const int pieces, const __grid_constant__ FeatureCall call) {
  __shared__ float warps[kRunThreads / kWarp];
  const RowPiece at(call, pieces);
  const float* rows = call.found + std::int64_t{at.head} * call.rows;
  float most = -kInfinity;
#pragma unroll
  for (int i = 0; i < kRunEach; ++i) {
    const int token = at.first + i * kRunThreads + static_cast<int>(threadIdx.x);
    if (token < at.end) most = fmaxf(most, rows[token]);
  }
  most = block_max<kRunThreads>(most, warps);
  if (threadIdx.x == 0) maxima[blockIdx.x] = most;
}

// found becomes the largest of all pieces.
__global__ void __launch_bounds__(kRunThreads)
    whole_stabiliser_kernel(const float* maxima, const int pieces,
                            const __grid_constant__ FeatureCall call) {
  __shared__ float warps[kRunThreads / kWarp];
  const RowPiece at(call, pieces);
  float* rows = call.found + std::int64_t{at.head} * call.rows;
  float most = -kInfinity;
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kRunThreads)
    most = fmaxf(most, maxima[std::int64_t{at.head} * pieces + i]);
  most = block_max<kRunThreads>(most, warps);
  for (int token = at.first + static_cast<int>(threadIdx.x); token < at.end; token += kRunThreads)
    rows[token] = most;
}

void share_stabiliser(StreamRef stream, const FeatureCall& call) {
  constexpr const char* kLauncher = "features_forward";
  const auto heads = static_cast<unsigned>(call.batch * call.heads);
  const cudaStream_t queue = stream_of(stream);
  if (call.tokens.segments != nullptr) {
    segment_stabiliser_kernel<<<heads, kRunThreads, 0, queue>>>(call);
  } else {
    const unsigned pieces = blocks_for(call.rows, kRunPiece), grid = heads * pieces;
    auto* maxima = static_cast<float*>(scratch(stream, grid * sizeof(float), kLauncher));
    piece_maxima_kernel<<<grid, kRunThreads, 0, queue>>>(maxima, static_cast<int>(pieces), call);
    check_launch(kLauncher);
    whole_stabiliser_kernel<<<grid, kRunThreads, 0, queue>>>(maxima, static_cast<int>(pieces),
                                                             call);
  }
  check_launch(kLauncher);
}

template <class T, Makes kMakes>
void launch(StreamRef stream, const FeatureCall& call) {
  if constexpr (sizeof(T) == 2) {
    if (fits_held(call)) return held_features<T>(stream, call, kMakes == Makes::maxima);
  }
  const int parts = sizeof(T) == 2 ? 2 : 1;
  const unsigned bytes =
      static_cast<unsigned>(call.width_tiles() + parts + 1) * SquareTile<T>::kBytes +
      kTileSide * sizeof(float) + 1024;
  const auto blocks = static_cast<unsigned>(std::int64_t{call.batch} * call.heads * call.tiles());
  const auto kernel = call.slabs() <= kOwnSlabs ? random_features_kernel<T, kMakes, true>
                                                : random_features_kernel<T, kMakes, false>;
  launch_shared(stream, "features_forward", kernel, blocks, kTileThreads, bytes, call);
}

}  // namespace

void random_features(StreamRef stream, DType dtype, const FeatureCall& call) {
  for_float(dtype, "features_forward", [&](auto zero) {
    using T = decltype(zero);
    if (call.stabiliser == Stabiliser::shared && !call.knows_shared) {
      launch<T, Makes::maxima>(stream, call);
      share_stabiliser(stream, call);
    }
    launch<T, Makes::features>(stream, call);
  });
}

}  // namespace fovea::cuda
