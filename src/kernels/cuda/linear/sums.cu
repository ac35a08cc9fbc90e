// ChunkSums of features times columns: of every chunk by itself, then over the
// chunks.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/linear/narrow_sums.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

// Local sums [64 features x 64 columns] of one chunk, one side: x^T (factor y)
// over its tokens, x features and y values of keys, or x features and y output
// gradients of queries, whose column behind the values is -delta. Reads its
// tokens' tiles once, writes the sums once.
template <class T, bool kQueries>
__global__ void __launch_bounds__(kTileThreads)
    local_sums_kernel(const __grid_constant__ LinearCall call, const int which) {
  using Tile = SquareTile<T>;
  const unsigned x_tile = tile_base(), y_tile = x_tile + Tile::kBytes;
  float* factors = shared_pointer<float>(y_tile + Tile::kBytes);
  float* behind = factors + kTileSide;
  const LanePlace at;
  const int slabs = call.padded_features / kTileSide, blocks = call.padded_values / kTileSide;
  const int chunks = kQueries ? call.query_chunks : call.key_chunks;
  const int slab = static_cast<int>(blockIdx.x) % slabs,
            block = static_cast<int>(blockIdx.x) / slabs % blocks,
            t = static_cast<int>(blockIdx.x) / slabs / blocks;
  const int s = static_cast<int>(blockIdx.y) % call.states,
            b = static_cast<int>(blockIdx.y) / call.states;
  const ScanSide& side = call.side[which];
  const ChunkSums& sums = kQueries ? side.queries : side.keys;
  const EdgeIds edges = edges_of(call, side, b, chunks, t);
  const int first = t * call.chunk;
  const int end = min(first + call.chunk, kQueries ? call.queries : call.keys);
  const std::int64_t key_row = call.key_of(b, s);
  const float last = call.decay == nullptr || kQueries ? 0.0f : call.gamma[key_row + end - 1];
  const float scale =
      kQueries ? call.rows.top[call.chunk_of(b, s, t, chunks)] : 1.0f;  // of all factors
  const Tokens& tokens = kQueries ? call.query_tokens : call.key_tokens;
  const auto factor_of = [&](int h, int token) {
    if (token >= end || !tokens.is_valid(b, token)) return 0.0f;
    if (side.in != nullptr && tokens.segment(b, token) != (kQueries ? edges.in : edges.out))
      return 0.0f;
    if constexpr (kQueries) {
      const float early = call.decay == nullptr ? 1.0f : exp2f(call.gamma[key_row + token]);
      return capped<T>(call.rows.rho[call.row_of(b, h) + token] / scale) * early;
    } else {
      const float late = call.decay == nullptr ? 1.0f : exp2f(last - call.gamma[key_row + token]);
      return call.key_weight(key_row + token) * late;
    }
  };

  float out[8][4] = {}, out_z[2] = {};
  const int group = kQueries ? call.group() : 1;
  for (int g = 0; g < group; ++g) {
    const int h = kQueries ? s * group + g : 0;
    const T* x = kQueries ? call.a.at<const T>(b, h) : call.b.at<const T>(b, call.key_head(s));
    const T* y = kQueries ? call.dout.at<const T>(b, h) : call.v.at<const T>(b, call.value_head(s));
    for (int token = first; token < end; token += kTileSide) {
      __syncthreads();
      if (threadIdx.x < kTileSide) {
        const int mine = token + static_cast<int>(threadIdx.x);
        const float factor = factor_of(h, mine);
        factors[threadIdx.x] = factor;
        behind[threadIdx.x] =
            kQueries && factor != 0 ? -factor * call.rows.delta[call.row_of(b, h) + mine] : factor;
      }
      __syncthreads();
      load_tile<T>(x_tile, kQueries ? call.a : call.b, x, token, slab * kTileSide,
                   [&](int i) { return factors[i - token] != 0 ? 1.0f : 0.0f; });
      load_tile<T>(y_tile, kQueries ? call.dout : call.v, y, token, block * kTileSide,
                   [&](int i) { return factors[i - token]; });
      __syncthreads();
      Tile::template product<Lies::by_columns, Lies::by_rows>(out, x_tile, y_tile, at);
      if (block == 0) Tile::template times_vector<Lies::by_columns>(out_z, x_tile, behind, at);
    }
  }
  const std::int64_t entry = call.chunk_of(b, s, t, chunks);
  float* to = sums.local + entry * call.padded_features * call.padded_values +
              std::int64_t{slab} * kTileSide * call.padded_values + block * kTileSide;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      *reinterpret_cast<float2*>(to + std::int64_t{at.row(2 * r)} * call.padded_values +
                                 at.column(n, 0)) =
          make_float2(out[n][2 * r] * scale, out[n][2 * r + 1] * scale);
    }
  }
  if (block == 0 && at.lane % 4 == 0) {
    float* z = sums.local_z + entry * call.padded_features + slab * kTileSide;
    z[at.row(0)] = out_z[0] * scale;
    z[at.row(2)] = out_z[1] * scale;
  }
}

// 2^e with 2^e <= mass < 2^(e+1), and its inverse: 16-bit states are kept near
// one.
struct Undo {
  float undo = 1, by = 1;
};
template <class T>
__device__ __forceinline__ Undo undo_of(float mass) {
  if constexpr (sizeof(T) == 4) return {};
  if (!(mass > 0)) return {};
  const int exponent = min(max(static_cast<int>(__float_as_uint(mass) >> 23), 1), 253);
  return {__uint_as_float(static_cast<unsigned>(exponent) << 23),
          __uint_as_float(static_cast<unsigned>(254 - exponent) << 23)};
}

__device__ __forceinline__ void store4(float* to, const float (&v)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
}
template <class T>
__device__ __forceinline__ void store4(T* to, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack<T>(v[0], v[1]), pack<T>(v[2], v[3]));
}

enum class Scan { from_left, from_right, total };

constexpr int kScanThreads = 128;
// A thread's places for chunks whose copies are under way: groups of some that it takes at a time.
constexpr int kScanGroup = 4, kScanGroups = 5;

// states[t] = what stands before chunk t in the direction of the scan, or the
// sum of all. A thread has four neighbouring elements of one state or of z and
// walks the chunks in order, far behind what it copies to shared memory: a few
// heads' threads alone keep the memory busy. Everyone follows the masses. Reads
// local sums once, writes states once.
template <class T, Scan kScan>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const __grid_constant__ LinearCall call, const ChunkSums sums, const float* keep,
                const int chunks, float* carried) {
  const std::int64_t size = std::int64_t{call.padded_features} * call.padded_values;
  const std::int64_t head = blockIdx.y;  // b S + s
  const std::int64_t unit = std::int64_t{blockIdx.x} * kScanThreads + threadIdx.x,
                     z_unit = unit - size / 4;
  const bool of_states = z_unit < 0, exists = z_unit < call.padded_features / 4, first = unit == 0;
  const std::int64_t step = of_states ? size : call.padded_features;
  const float* const local = of_states ? sums.local + head * chunks * size + unit * 4
                                       : sums.local_z + head * chunks * step + z_unit * 4;
  const float *const keeps = keep + head * chunks, *const masses = sums.mass + head * chunks;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned places = (shared_base() + 15) / 16 * 16 + threadIdx.x * 16;
  const auto chunk_at = [&](int i) { return kScan == Scan::from_right ? chunks - 1 - i : i; };
  const auto place_of = [&](int i) {
    return places + static_cast<unsigned>(i % (kScanGroup * kScanGroups) * kScanThreads * 16);
  };
  const auto bring = [&](int group) {
#pragma unroll
    for (int u = 0; u < kScanGroup; ++u) {
      const int i = group * kScanGroup + u;
      if (exists && i < chunks) copy_async(place_of(i), local + chunk_at(i) * step, true);
    }
    commit_copies();
  };
  for (int group = 0; group < kScanGroups - 1; ++group)
    bring(group);

  float run[4] = {}, mass = 0;
  // The caller's state is [features, values + 1].
  const auto of_carried = [&](int e) -> float* {
    const std::int64_t row = of_states ? unit * 4 / call.padded_values : z_unit * 4 + e;
    const std::int64_t column = of_states ? unit * 4 % call.padded_values + e : call.values;
    const bool real = exists && row < call.features && (!of_states || column < call.values);
    return real ? carried + (head * call.features + row) * (call.values + 1) + column : nullptr;
  };
  if (carried != nullptr) {
    mass = call.carried_mass[head];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (const float* from = of_carried(e); from != nullptr) run[e] = *from;
    }
  }
  const auto write = [&](int t) {
    const Undo undo = undo_of<T>(mass);
    const std::int64_t entry = head * call.state_count + t;
    if (of_states) {
      const float scaled[4] = {run[0] * undo.by, run[1] * undo.by, run[2] * undo.by,
                               run[3] * undo.by};
      store4(static_cast<T*>(sums.states) + entry * size + unit * 4, scaled);
    } else if (exists) {
      const std::int64_t at = entry * call.padded_features + z_unit * 4;
      store4(sums.z + at, run);
      if constexpr (sizeof(T) == 2) {
        if (sums.z_parts != nullptr) {
          float low[4], high[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const Parts<T> parts(run[e] * undo.by);
            high[e] = to_float(parts.high), low[e] = to_float(parts.low);
          }
          T* const to = static_cast<T*>(sums.z_parts) + 2 * at - at % kTileSide;
          store4(to, high);
          store4(to + kTileSide, low);
        }
      }
    }
    if (first) sums.undo[entry] = undo.undo;
  };
  // A lane's share of what all follow of the next chunks.
  const auto kept_at = [&](int i) {
    return kScan != Scan::total && i < chunks ? keeps[chunk_at(i)] : 1.0f;
  };
  const auto mass_at = [&](int i) { return i < chunks ? masses[chunk_at(i)] : 0.0f; };
  float next_kept = kept_at(lane), next_mass = mass_at(lane);
  for (int done = 0; done < chunks; done += kWarp) {
    const float kept = next_kept, more = next_mass;
    next_kept = kept_at(done + kWarp + lane), next_mass = mass_at(done + kWarp + lane);
    for (int part = 0; part < kWarp && done + part < chunks; part += kScanGroup) {
      const int first_of = done + part;
      wait_copies<kScanGroups - 2>();
      float4 next[kScanGroup];
#pragma unroll
      for (int u = 0; u < kScanGroup; ++u)
        next[u] = *shared_pointer<const float4>(place_of(first_of + u));
#pragma unroll
      for (int u = 0; u < kScanGroup; ++u) {
        const float by = __shfl_sync(~0u, kept, part + u),
                    mass_here = __shfl_sync(~0u, more, part + u);
        if (first_of + u >= chunks) continue;
        if constexpr (kScan != Scan::total) write(chunk_at(first_of + u));
        run[0] = fmaf(by, run[0], next[u].x), run[1] = fmaf(by, run[1], next[u].y);
        run[2] = fmaf(by, run[2], next[u].z), run[3] = fmaf(by, run[3], next[u].w);
        mass = fmaf(by, mass, mass_here);
      }
      bring(first_of / kScanGroup + kScanGroups - 1);
    }
  }
  if constexpr (kScan == Scan::total) write(0);
  if (carried == nullptr) return;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (float* to = of_carried(e); to != nullptr) *to = run[e];
  }
}

constexpr int kMassThreads = 256;

// The largest magnitude in a state that a caller carries on, one block a state.
__global__ void __launch_bounds__(kMassThreads)
    carried_mass_kernel(float* mass, const float* carried, std::int64_t size) {
  __shared__ float warps[kMassThreads / kWarp];
  float most = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kMassThreads)
    most = fmaxf(most, fabsf(carried[blockIdx.x * size + i]));
  most = block_max<kMassThreads>(most, warps);
  if (threadIdx.x == 0) mass[blockIdx.x] = most;
}

template <class T, Scan kScan>
void launch_scan(StreamRef stream, const LinearCall& call, const ChunkSums& sums, const float* keep,
                 int chunks, float* carried) {
  const std::int64_t units = std::int64_t{call.padded_features} * (call.padded_values + 1) / 4;
  constexpr unsigned kBytes = kScanGroup * kScanGroups * kScanThreads * 16 + 16;
  const dim3 grid(blocks_for(units, kScanThreads), static_cast<unsigned>(call.batch * call.states));
  scan_kernel<T, kScan>
      <<<grid, kScanThreads, kBytes, stream_of(stream)>>>(call, sums, keep, chunks, carried);
  check_launch("linear_attention scan");
}

template <class T, bool kQueries>
void run(StreamRef stream, const LinearCall& call) {
  const int chunks = kQueries ? call.query_chunks : call.key_chunks;
  const int tiles = call.padded_features / kTileSide * (call.padded_values / kTileSide);
  const unsigned bytes = 2 * SquareTile<T>::kBytes + 2 * kTileSide * sizeof(float) + 1024;
  const dim3 grid(static_cast<unsigned>(chunks * tiles),
                  static_cast<unsigned>(call.batch * call.states));
  for (int which = 0; which < call.sides; ++which) {
    const ScanSide& side = call.side[which];
    const ChunkSums& sums = kQueries ? side.queries : side.keys;
    if (chunks > 0) {
      if constexpr (sizeof(T) == 2) {
        launch_narrow_sums<T, kQueries>(stream, call, which);
      } else {
        local_sums_kernel<T, kQueries>
            <<<grid, kTileThreads, bytes, stream_of(stream)>>>(call, which);
        check_launch("linear_attention sums");
      }
    }
    float* carried = kQueries ? nullptr : call.carried;
    if (carried != nullptr) {
      carried_mass_kernel<<<static_cast<unsigned>(call.batch * call.states), kMassThreads, 0,
                            stream_of(stream)>>>(call.carried_mass, carried,
                                                 std::int64_t{call.features} * (call.values + 1));
      check_launch("linear_attention carried mass");
    }
    const bool leftwards = (which == 1) != kQueries;
    if (call.state_count == 1 && !call.pairs)
      launch_scan<T, Scan::total>(stream, call, sums, side.keep, chunks, carried);
    else if (leftwards)
      launch_scan<T, Scan::from_right>(stream, call, sums, side.keep, chunks, carried);
    else
      launch_scan<T, Scan::from_left>(stream, call, sums, side.keep, chunks, carried);
  }
}

}  // namespace

void linear_sums(StreamRef stream, DType dtype, const LinearCall& call, bool queries) {
  for_float(dtype, "linear_attention", [&](auto zero) {
    using T = decltype(zero);
    if (queries)
      run<T, true>(stream, call);
    else
      run<T, false>(stream, call);
  });
}

}  // namespace fovea::cuda
