#pragma once
// The backward kernel of one pass, for heads up to 64 wide on sm_90a: five products a pair of
// tiles, where backward.cuh needs seven.
//
// A block walks whole heads: the key tiles of a head in order (128 keys), and for each the query
// tiles that see it in order (64 queries). Two warpgroups own 64 keys each and hold dK and dV:
//   P^T = exp(K Q^T - lse), dS^T = P^T (V dO^T - delta), dV += P^T dO, dK += dS^T Q
// They leave dS^T in shared memory for a third warpgroup, which adds dS K to the dQ of the query
// tile, and which also brings every operand in. The dQ of a head, in f32, is kept between two visits
// by the threads that made it: the last tiles, which are visited most, in shared memory, the others
// in a scratch that each block uses again for every head, so that it stays in the L2 cache. So every
// sum is made by one thread in one order: no atomics, and the result is a pure function of the shape
// and the values. The number of blocks decides nothing but the time.
//
// Traffic: k, v, dq, dk, dv once; q, dout once a key tile that sees them, 512 bytes of scratch a
// query and key tile but for the tiles kept in shared memory; all but the first use from L2.

#include "kernels/cuda/flash/tokens.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

constexpr int kPassKeys = 128, kPassQueries = 64, kPassStages = 3, kPassThreads = 384;

// kHoldOperands: whether the owners of keys hold k and v in registers or multiply them from shared
// memory. kKept: query tiles whose dQ stays in shared memory. Registers of the two kinds of
// warpgroups: owners + owners + third = 504.
template <int kKept_, bool kHoldOperands_, int kOwnerRegisters_ = 208>
struct OnePassShape {
  static constexpr int kKept = kKept_, kOwnerRegisters = kOwnerRegisters_;
  static constexpr int kThirdRegisters = 504 - 2 * kOwnerRegisters;
  static constexpr bool kHoldOperands = kHoldOperands_;
  using Tile = Swizzled<64>;
  static constexpr unsigned kTileBytes = 64 * Tile::kRowBytes;
  // k, v | k, v;  q, dout | q, dout | q, dout;  dS^T | dS^T;  dQ | ...;  lse, delta | ... ; barriers
  static constexpr unsigned kKeyBytes = 4 * kTileBytes, kQueryBytes = 2 * kTileBytes;
  static constexpr unsigned kScoreBytes = 2 * kTileBytes, kKeptBytes = 64 * 64 * sizeof(float);
  static constexpr unsigned kRowBytes = 2 * kPassQueries * sizeof(float);
  static constexpr unsigned kQueriesAt = 2 * kKeyBytes;
  static constexpr unsigned kScoresAt = kQueriesAt + kPassStages * kQueryBytes;
  static constexpr unsigned kKeptAt = kScoresAt + 2 * kScoreBytes;
  static constexpr unsigned kRowsAt = kKeptAt + kKept * kKeptBytes;
  static constexpr unsigned kBarriersAt = kRowsAt + kPassStages * kRowBytes;
  static constexpr unsigned kBytes = kBarriersAt + 128 + Tile::kAlignment;
  static_assert(kBytes <= 232448);
};

// The shared memory of a block. Barriers, by turn:
//   loaded[stage]    turn n: the n-th tile of queries of the stage is there, and its key tile
//   used[stage]      turn n: the owners need it no more
//   keys_used[i]     turn n: the owners need the n-th key tile of the buffer no more
//   scored[i]        turn n: the n-th dS^T of the buffer is there
//   scores_used[i]   turn n: nobody needs it any more
template <class Shape>
struct OnePassMemory {
  unsigned base;

  __device__ __forceinline__ OnePassMemory()
      : base((shared_base() + Shape::Tile::kAlignment - 1) / Shape::Tile::kAlignment *
             Shape::Tile::kAlignment) {}
  // A key tile's k, then its v.
  __device__ __forceinline__ unsigned keys(int step) const {
    return base + static_cast<unsigned>(step & 1) * Shape::kKeyBytes;
  }
  __device__ __forceinline__ unsigned queries(int stage) const {
    return base + Shape::kQueriesAt + static_cast<unsigned>(stage) * Shape::kQueryBytes;
  }
  __device__ __forceinline__ unsigned scores(int step) const {
    return base + Shape::kScoresAt + static_cast<unsigned>(step & 1) * Shape::kScoreBytes;
  }
  __device__ __forceinline__ unsigned rows(int stage) const {
    return base + Shape::kRowsAt + static_cast<unsigned>(stage) * Shape::kRowBytes;
  }
  __device__ __forceinline__ unsigned barrier(int index) const {
    return base + Shape::kBarriersAt + static_cast<unsigned>(index) * 8;
  }
  __device__ __forceinline__ unsigned loaded(int stage) const { return barrier(stage); }
  __device__ __forceinline__ unsigned used(int stage) const { return barrier(kPassStages + stage); }
  __device__ __forceinline__ unsigned keys_used(int step) const {
    return barrier(2 * kPassStages + (step & 1));
  }
  __device__ __forceinline__ unsigned scored(int step) const {
    return barrier(2 * kPassStages + 2 + (step & 1));
  }
  __device__ __forceinline__ unsigned scores_used(int step) const {
    return barrier(2 * kPassStages + 4 + (step & 1));
  }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kPassStages; ++stage) {
      init_barrier(loaded(stage), 4);
      init_barrier(used(stage), 8);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(keys_used(i), 8);
      init_barrier(scored(i), 8);
      init_barrier(scores_used(i), 4);
    }
  }
};

struct OnePass {
  int heads = 0, key_tiles = 0, query_tiles = 0;
  float* partial = nullptr;  // [blocks, query_tiles, 64, 64]

  // The first query tile of which some query sees `key`.
  __device__ __forceinline__ int first_seeing(const FlashCall& call, int key) const {
    return call.causal ? max(0, key - call.offset) / kPassQueries : 0;
  }
  // The last key tile of which some key is seen by the query tile.
  __device__ __forceinline__ int last_seen(const FlashCall& call, int query_tile) const {
    const int last = query_tile * kPassQueries + kPassQueries - 1 + call.offset;
    return call.causal ? min(key_tiles - 1, last / kPassKeys) : key_tiles - 1;
  }
};

// A turn of a ring: which place of it, and how often it went round.
template <int kPlaces>
struct Ring {
  int place = 0, round = 0;
  __device__ __forceinline__ void advance() {
    if (++place == kPlaces) place = 0, ++round;
  }
};

// A place in the walk of a block. Every warpgroup makes the same one.
struct PassPlace {
  int head, key_tile = 0, query_tile, first_query_tile;
  int key_step = 0;  // key tiles so far

  __device__ __forceinline__ PassPlace(const FlashCall& call, const OnePass& pass)
      : head(static_cast<int>(blockIdx.x)) {
    first_query_tile = query_tile = pass.first_seeing(call, 0);
  }
  __device__ __forceinline__ void advance(const FlashCall& call, const OnePass& pass) {
    if (++query_tile < pass.query_tiles) return;
    ++key_step;
    if (++key_tile == pass.key_tiles) {
      key_tile = 0;
      head += static_cast<int>(gridDim.x);
    }
    first_query_tile = query_tile = pass.first_seeing(call, key_tile * kPassKeys);
  }
};

// The third warpgroup, threads 0 to 127: brings operands in and adds up dQ.
template <class T, class Shape>
__device__ __forceinline__ void one_pass_queries(const FlashCall& call, const OnePass& pass,
                                                 const OnePassMemory<Shape>& memory) {
  constexpr unsigned kTileBytes = Shape::kTileBytes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = uniform_warp();
  const std::int64_t plane =
      static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
  float* const partial =
      pass.partial + static_cast<std::int64_t>(blockIdx.x) * pass.query_tiles * (64 * 64);
  const int first_kept = max(0, pass.query_tiles - Shape::kKept);

  PassPlace here(call, pass), ahead(call, pass);
  Ring<kPassStages> filling, telling;
  int loaded = 0, told = 0;
  for (int step = 0; here.head < pass.heads; ++step) {
    // Two tiles ahead, but never into the buffer of a key tile that is still at work here.
    while (loaded <= step + 2 && ahead.head < pass.heads && ahead.key_step <= here.key_step + 1) {
      const int b = ahead.head / call.heads, h = ahead.head % call.heads;
      if (filling.round > 0) wait_turn(memory.used(filling.place), filling.round - 1);
      if (ahead.query_tile == ahead.first_query_tile) {
        const int first = ahead.key_tile * kPassKeys;
        if (ahead.key_step >= 2)
          wait_turn(memory.keys_used(ahead.key_step), ahead.key_step / 2 - 1);
        const unsigned to = memory.keys(ahead.key_step);
        load_tile<T, 64, kPassKeys, false>(to, call.k.at<const T>(b, h), call.k.row, first,
                                           call.keys, call.width, call.key_tokens, b);
        load_tile<T, 64, kPassKeys, false>(to + 2 * kTileBytes, call.v.at<const T>(b, h),
                                           call.v.row, first, call.keys, call.value_width,
                                           call.key_tokens, b);
      }
      const int first = ahead.query_tile * kPassQueries;
      const unsigned to = memory.queries(filling.place);
      load_tile<T, 64, kPassQueries, false>(to, call.q.at<const T>(b, h), call.q.row, first,
                                            call.queries, call.width, call.query_tokens, b);
      load_tile<T, 64, kPassQueries, false>(to + kTileBytes, call.dout.at<const T>(b, h),
                                            call.dout.row, first, call.queries, call.value_width,
                                            call.query_tokens, b);
      constexpr int kPieces = kPassQueries / 4;  // 16 bytes each, of one plane
      if (thread < 2 * kPieces) {
        const float* rows = call.rows + (thread < kPieces ? 0 : plane) +
                            static_cast<std::int64_t>(ahead.head) * call.padded_queries + first;
        copy_async(memory.rows(filling.place) + static_cast<unsigned>(thread) * 16,
                   rows + thread % kPieces * 4, true);
      }
      commit_copies();
      ++loaded;
      filling.advance();
      ahead.advance(call, pass);
    }
    const int tell = min(loaded, step + 2);
    if (told < tell) {
      if (loaded > tell)
        wait_copies<1>();
      else
        wait_copies<0>();
      wgmma_written();
      for (; told < tell; ++told, telling.advance())
        arrive_warp(memory.loaded(telling.place));
    }

    // What earlier key tiles left.
    const bool kept = here.query_tile >= first_kept;
    const unsigned kept_at = memory.base + Shape::kKeptAt +
                             static_cast<unsigned>(here.query_tile - first_kept) *
                                 Shape::kKeptBytes +
                             static_cast<unsigned>(thread) * 16;
    float4* const partial_at =
        reinterpret_cast<float4*>(partial + static_cast<std::int64_t>(here.query_tile) * (64 * 64)) +
        thread;
    float dq[8][4] = {};
    if (here.key_tile > 0) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float4 old = kept ? *shared_pointer<float4>(kept_at + static_cast<unsigned>(n) * 2048)
                                : __ldcg(partial_at + n * 128);
        dq[n][0] = old.x, dq[n][1] = old.y, dq[n][2] = old.z, dq[n][3] = old.w;
      }
    }

    const unsigned scores = memory.scores(step), keys = memory.keys(here.key_step);
    const int first_key = here.key_tile * kPassKeys + 64;
    const bool both =
        first_key < call.keys && here.query_tile >= pass.first_seeing(call, first_key);
    wait_turn(memory.scored(step), step / 2);
    keep(dq);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma<T, Walk::across_k, Walk::across_k>(
          dq, operand_at(scores + static_cast<unsigned>(k) * 2048),
          operand_at(keys + static_cast<unsigned>(k) * 2048));
    if (both) {
#pragma unroll
      for (int k = 4; k < 8; ++k)
        wgmma<T, Walk::across_k, Walk::across_k>(
            dq, operand_at(scores + static_cast<unsigned>(k) * 2048),
            operand_at(keys + static_cast<unsigned>(k) * 2048));
    }
    wgmma_commit();
    wgmma_wait<0>();
    keep(dq);

    if (here.key_tile == pass.last_seen(call, here.query_tile)) {
      // dS^T makes room for the result, as soon as none of the four warps reads it.
      sync_warpgroup(1);
      float rows[1][8][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          rows[0][n][e] = dq[n][e] * call.scale;
      }
      const int b = here.head / call.heads, h = here.head % call.heads;
      store_rows<T, 64, 1>(scores, warp * 16, call.dq.at<T>(b, h), call.dq.row,
                           here.query_tile * kPassQueries + warp * 16, call.queries, call.width,
                           rows);
      arrive_warp(memory.scores_used(step));
    } else {
      arrive_warp(memory.scores_used(step));
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float4 sum = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
        if (kept)
          *shared_pointer<float4>(kept_at + static_cast<unsigned>(n) * 2048) = sum;
        else
          __stcg(partial_at + n * 128, sum);
      }
    }
    here.advance(call, pass);
  }
}

// An owner of 64 keys of every tile, the first or second `half`.
template <class T, class Shape>
__device__ __forceinline__ void one_pass_keys(const FlashCall& call, const OnePass& pass,
                                              const OnePassMemory<Shape>& memory, int half) {
  using Tile = typename Shape::Tile;
  constexpr unsigned kTileBytes = Shape::kTileBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp() % 4;
  const int lane_column = lane % 4 * 2;
  const unsigned by_rows =
      static_cast<unsigned>(warp * 16 * Tile::kRowBytes) + Tile::lane_by_rows(lane);
  const unsigned own = static_cast<unsigned>(half) * kTileBytes;
  const float scale = call.scale * kLog2E;
  Ring<kPassStages> stage, previous;
  Ring<2> buffer;

  int key_step = 0;
  for (int head = static_cast<int>(blockIdx.x); head < pass.heads;
       head += static_cast<int>(gridDim.x)) {
    const int b = head / call.heads, h = head % call.heads;
    for (int key_tile = 0; key_tile < pass.key_tiles; ++key_tile, ++key_step) {
      const int first_key = key_tile * kPassKeys + 64 * half;
      const unsigned keys = memory.keys(key_step) + own, values = keys + 2 * kTileBytes;
      int tile = pass.first_seeing(call, key_tile * kPassKeys);
      const int first_tile =
          first_key < call.keys ? pass.first_seeing(call, first_key) : pass.query_tiles;
      wait_turn(memory.loaded(stage.place), stage.round);
      unsigned k[4][4], v[4][4];
      if constexpr (Shape::kHoldOperands) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          ldmatrix(k[i], Tile::block(keys + by_rows, 0, i));
          ldmatrix(v[i], Tile::block(values + by_rows, 0, i));
        }
      }
      // Tiles that see only the other owner's keys.
      for (; tile < first_tile; ++tile, stage.advance(), buffer.advance()) {
        wait_turn(memory.loaded(stage.place), stage.round);
        arrive_warp(memory.used(stage.place));
        if (buffer.round > 0) wait_turn(memory.scores_used(buffer.place), buffer.round - 1);
        arrive_warp(memory.scored(buffer.place));
      }

      float dk[1][8][4] = {}, dv[1][8][4] = {};
      if (tile < pass.query_tiles) {
      unsigned p[4][4], ds[4][4];
#pragma unroll 1
      for (; tile < pass.query_tiles; ++tile, stage.advance(), buffer.advance()) {
        const unsigned queries = memory.queries(stage.place), douts = queries + kTileBytes;
        const unsigned rows = memory.rows(stage.place) + static_cast<unsigned>(lane_column) * 4;
        wait_turn(memory.loaded(stage.place), stage.round);
        wgmma_wait<1>();  // the dV before this
        float s[8][4], dp[8][4];
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned at = static_cast<unsigned>(i) * 32;
          if constexpr (Shape::kHoldOperands) {
            if (i == 0)
              wgmma_first<T, Walk::along_k>(s, k[i], operand_at(queries + at));
            else
              wgmma<T, Walk::along_k>(s, k[i], operand_at(queries + at));
          } else {
            if (i == 0)
              wgmma_first<T, Walk::along_k, Walk::along_k>(s, operand_at(keys + at),
                                                           operand_at(queries + at));
            else
              wgmma<T, Walk::along_k, Walk::along_k>(s, operand_at(keys + at),
                                                     operand_at(queries + at));
          }
        }
        wgmma_commit();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned at = static_cast<unsigned>(i) * 32;
          if constexpr (Shape::kHoldOperands) {
            if (i == 0)
              wgmma_first<T, Walk::along_k>(dp, v[i], operand_at(douts + at));
            else
              wgmma<T, Walk::along_k>(dp, v[i], operand_at(douts + at));
          } else {
            if (i == 0)
              wgmma_first<T, Walk::along_k, Walk::along_k>(dp, operand_at(values + at),
                                                           operand_at(douts + at));
            else
              wgmma<T, Walk::along_k, Walk::along_k>(dp, operand_at(values + at),
                                                     operand_at(douts + at));
          }
        }
        wgmma_commit();
        wgmma_wait<1>();  // the scores, and the dK before them
        keep(s);
        if (tile > first_tile) arrive_warp(memory.used(previous.place));
        previous = stage;

        const int first = tile * kPassQueries;
        if (first_key + 64 > call.keys ||
            (call.causal && first_key + 63 > first + call.offset)) {
          const int key = first_key + warp * 16 + lane / 4;
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int at = key + e / 2 * 8, query = first + 8 * n + lane_column + e % 2;
              if (at >= call.keys || (call.causal && at > query + call.offset))
                s[n][e] = __int_as_float(0xff800000);
            }
          }
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 lse = *shared_pointer<float2>(rows + static_cast<unsigned>(n) * 32);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[n][e] = exp2_fast(fmaf(s[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
          as_operand<T>(p[i], s[2 * i], s[2 * i + 1]);
        keep(p);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wgmma<T, Walk::across_k>(dv[0], p[i],
                                   operand_at(douts + static_cast<unsigned>(i) * 2048));
        wgmma_commit();
        wgmma_wait<1>();  // dP
        keep(dp);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float2 delta =
              *shared_pointer<float2>(rows + Shape::kRowBytes / 2 + static_cast<unsigned>(n) * 32);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            dp[n][e] = (dp[n][e] + (e % 2 == 0 ? delta.x : delta.y)) * s[n][e];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
          as_operand<T>(ds[i], dp[2 * i], dp[2 * i + 1]);
        keep(ds);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wgmma<T, Walk::across_k>(dk[0], ds[i],
                                   operand_at(queries + static_cast<unsigned>(i) * 2048));
        wgmma_commit();
        if (buffer.round > 0) wait_turn(memory.scores_used(buffer.place), buffer.round - 1);
        const unsigned scores = memory.scores(buffer.place) + own + by_rows;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          stmatrix(Tile::block(scores, 0, i), ds[i]);
        wgmma_written();
        arrive_warp(memory.scored(buffer.place));
      }
      wgmma_wait<0>();
      keep(dk[0]);
      keep(dv[0]);
      arrive_warp(memory.used(previous.place));
      }

      // The values' room takes the results: each warp's in the rows that only it has read.
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dk[0][n][e] *= call.scale;
      }
      store_rows<T, 64, 1>(values, warp * 16, call.dv.at<T>(b, h), call.dv.row,
                           first_key + warp * 16, call.keys, call.value_width, dv);
      __syncwarp();
      store_rows<T, 64, 1>(values, warp * 16, call.dk.at<T>(b, h), call.dk.row,
                           first_key + warp * 16, call.keys, call.width, dk);
      arrive_warp(memory.keys_used(key_step));
    }
  }
}

template <class T, class Shape>
__global__ __launch_bounds__(kPassThreads, 1) void flash_one_pass_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ OnePass pass) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const OnePassMemory<Shape> memory;
  if (threadIdx.x == 0) memory.init();
  __syncthreads();
  const int group = uniform_warp() / 4;
  if (group == 0) {
    leave_registers<Shape::kThirdRegisters>();
    one_pass_queries<T, Shape>(call, pass, memory);
  } else {
    take_registers<Shape::kOwnerRegisters>();
    one_pass_keys<T, Shape>(call, pass, memory, group - 1);
  }
#endif
}

// What the launch needs of scratch memory besides call.rows, in floats.
inline std::size_t one_pass_floats(const FlashCall& call) {
  const int heads = call.batch * call.heads;
  const int blocks = heads < multiprocessors() ? heads : multiprocessors();
  return static_cast<std::size_t>(blocks) *
         static_cast<std::size_t>((call.queries + kPassQueries - 1) / kPassQueries) * 64 * 64;
}

template <class T, class Shape>
void launch_one_pass(StreamRef stream, const FlashCall& call) {
  OnePass pass;
  pass.heads = call.batch * call.heads;
  pass.key_tiles = (call.keys + kPassKeys - 1) / kPassKeys;
  pass.query_tiles = (call.queries + kPassQueries - 1) / kPassQueries;
  pass.partial = call.partial;
  const int blocks = pass.heads < multiprocessors() ? pass.heads : multiprocessors();
  const auto kernel = flash_one_pass_kernel<T, Shape>;
  check_call(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes),
      "flash_backward");
  kernel<<<static_cast<unsigned>(blocks), kPassThreads, Shape::kBytes, stream_of(stream)>>>(call,
                                                                                            pass);
  check_launch("flash_backward");
}

}  // namespace fovea::cuda
