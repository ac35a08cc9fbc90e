// Positive random features, backward.

#include "kernels/cuda/features/held.cuh"
#include "kernels/cuda/features/softmax_rows.cuh"

namespace fovea::cuda {

namespace {

// 64 rows of one of x's heads, with all heads that map it. Makes the features again. Reads x, dy
// and shift once, the directions twice from L2; writes dx once.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks == 4 ? 1 : 2)
    random_gradients_kernel(const __grid_constant__ FeatureCall call) {
  using Tile = SquareTile<T>;
  using WideTile = SquareTile<Wide<T>>;
  const unsigned x_tiles = tile_base(), w_tile = x_tiles + kBlocks * Tile::kBytes,
                 g_tile = w_tile + (sizeof(T) == 2 ? 2 : 1) * Tile::kBytes,
                 turned = g_tile + WideTile::kBytes;
  float* squares = shared_pointer<float>(turned + WideTile::kBytes);
  const LanePlace at;
  const RowPlace place(call, call.x_heads);
  const int b = place.b, hx = place.h, first = place.tile * kTileSide, slabs = call.slabs();
  const T* x = call.x.at<const T>(b, hx);
  for (int block = 0; block < call.width_tiles(); ++block) {
    load_tile<T>(x_tiles + static_cast<unsigned>(block) * Tile::kBytes, call.x, x, first,
                 block * kTileSide,
                 [&](int i) { return call.tokens.is_valid(b, i) ? 1.0f : 0.0f; });
  }
  __syncthreads();
  row_squares<T>(squares, x_tiles, call.width_tiles());
  __syncthreads();
  bool valid[2];
  float norm[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = at.row(2 * r);
    valid[r] = first + row < call.rows && call.tokens.is_valid(b, first + row);
    norm[r] = 0.5f * call.scale * call.scale * squares[row];
  }

  const bool exponential_map = call.kind != FeatureKind::relu_random;
  const bool pair = call.kind == FeatureKind::softmax_pair;
  const bool clamped = call.stabiliser == Stabiliser::constant;
  float dx[kBlocks][8][4] = {}, past[2] = {};  // past: what -|x^|^2 / 2 takes back
  for (int h = hx * call.group(); h < (hx + 1) * call.group(); ++h) {
    const float* matrix = call.matrix(h);
    const std::int64_t row = call.row_of(b, h) + first;
    float shift[2] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (valid[r] && exponential_map) shift[r] = call.shift[row + at.row(2 * r)];
    }
    // The gradient of <w, x^> (sign 1) or <-w, x^> through its feature.
    const auto through = [&](float p, float dy, int r) {
      if (!exponential_map) return p > 0 ? dy : 0.0f;
      float z = p - norm[r];
      if (clamped && z > kFeatureClamp) return 0.0f;
      const float g = dy * exponential<T>(z - shift[r]);
      past[r] += g;
      return g;
    };
    for (int slab = 0; slab < slabs; ++slab) {
      float p[8][4];
      project_slab<T>(p, x_tiles, w_tile, call, matrix, slab, at);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int column = slab * kTileSide + at.column(n, 0);
        const bool one = column < call.directions, two = column + 1 < call.directions;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float2 g = {}, back = {};
          if (valid[r]) {
            const std::int64_t place_of = row + at.row(2 * r);
            g = call.gradient<T>(place_of, column, one, two);
            if (pair) back = call.gradient<T>(place_of, call.directions + column, one, two);
            const float p0 = p[n][2 * r] * call.scale, p1 = p[n][2 * r + 1] * call.scale;
            g.x = one ? through(p0, g.x, r) : 0.0f;
            g.y = two ? through(p1, g.y, r) : 0.0f;
            if (pair) {
              if (one) g.x -= through(-p0, back.x, r);
              if (two) g.y -= through(-p1, back.y, r);
            }
          }
          p[n][2 * r] = g.x;
          p[n][2 * r + 1] = g.y;
        }
      }
      put_sums<Wide<T>>(g_tile, p, at);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        __syncthreads();
        load_directions<Wide<T>>(turned, call, matrix, slab, block);
        __syncthreads();
        WideTile::template product<Lies::by_rows, Lies::by_rows>(dx[block], g_tile, turned, at);
      }
    }
  }

  past[0] = quad_sum(past[0]);
  past[1] = quad_sum(past[1]);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first + at.row(e), column = block * kTileSide + at.column(n, e);
        const float own = valid[e / 2] && column < call.width
                              ? call.scale * to_float(x[row * call.x.row + column])
                              : 0.0f;
        dx[block][n][e] = call.scale * (dx[block][n][e] - past[e / 2] * own);
      }
    }
    if (block < call.width_tiles())
      store_sums<T>(w_tile, call.dx, call.dx.at<T>(b, hx), first, block * kTileSide, dx[block], at,
                    false);
  }
}

template <class T, int kBlocks>
void launch(StreamRef stream, const FeatureCall& call) {
  const int parts = sizeof(T) == 2 ? 2 : 1;
  const unsigned bytes = static_cast<unsigned>(kBlocks + parts) * SquareTile<T>::kBytes +
                         2 * SquareTile<Wide<T>>::kBytes + kTileSide * sizeof(float) + 1024;
  const auto blocks = static_cast<unsigned>(std::int64_t{call.batch} * call.x_heads * call.tiles());
  launch_shared(stream, "features_backward", random_gradients_kernel<T, kBlocks>, blocks,
                kTileThreads, bytes, call);
}

}  // namespace

void random_feature_gradients(StreamRef stream, DType dtype, const FeatureCall& call) {
  for_float(dtype, "features_backward", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      if (fits_held_gradients(call)) return held_gradients<T>(stream, call);
    }
    for_width_tiles(call, [&](auto tiles) { launch<T, decltype(tiles)::value>(stream, call); });
  });
}

}  // namespace fovea::cuda
