#pragma once
// The third warpgroup of the one-pass backward kernel (one_pass.cuh), threads 0 to 127: it brings
// every operand in and adds up dQ.
//
// A step is a query tile of a key tile. dQ of the step comes from dS^T as soon as both owners have
// scored it; meanwhile the next two query tiles are in shared memory or on their way.

#include "kernels/cuda/flash/one_pass_plan.cuh"

namespace fovea::cuda {

template <class T, class Shape>
struct OnePassThird {
  static constexpr unsigned kTileBytes = Shape::kTileBytes;
  static constexpr int kStages = Shape::kStages;

  const FlashCall& call;
  const OnePass& pass;
  const OnePassMemory<Shape>& memory;
  PassPlace ahead;  // what is fetched next
  Ring<kStages> filling, telling;
  int loaded = 0, told = 0;

  __device__ __forceinline__ OnePassThird(const FlashCall& c, const OnePass& p,
                                          const OnePassMemory<Shape>& m)
      : call(c), pass(p), memory(m), ahead(c, p) {}

  // Fetches tiles up to `end`, but nothing into the buffer of a key tile that dQ still needs: steps
  // of key tile `key_step` are under way, all before it are done.
  __device__ __forceinline__ void fetch(int end, int key_step) {
    const int thread = static_cast<int>(threadIdx.x);
    while (loaded < end && ahead.head < pass.heads && ahead.key_step <= key_step + 1) {
      const int b = ahead.head / call.heads, h = ahead.head % call.heads;
      if (filling.round > 0) wait_turn(memory.used(filling.place), filling.round - 1);
      if (ahead.query_tile == ahead.first_query_tile) {
        const int first = ahead.key_tile * kPassKeys;
        if (ahead.key_step >= 2)
          wait_turn(memory.keys_used(ahead.key_step), ahead.key_step / 2 - 1);
        sync_warpgroup(1);  // this warp's dQ needs the buffer no more, nor does the others'
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
        const std::int64_t plane =
            static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
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
  }

  // Tells the owners of keys about the tiles up to `end` that were fetched, once they are there.
  __device__ __forceinline__ void tell(int end) {
    end = min(end, loaded);
    if (told >= end) return;
    if (loaded == end)
      wait_copies<0>();
    else if (loaded == end + 1)
      wait_copies<1>();
    else
      wait_copies<2>();
    wgmma_written();
    for (; told < end; ++told, telling.advance())
      arrive_warp(memory.loaded(telling.place));
  }

  __device__ __forceinline__ void run() {
    const int thread = static_cast<int>(threadIdx.x), warp = uniform_warp();
    float4* const partial = reinterpret_cast<float4*>(pass.partial) +
                            static_cast<std::int64_t>(blockIdx.x) * pass.query_tiles * (64 * 16) +
                            thread;
    const int first_kept = max(0, pass.query_tiles - Shape::kKept);
    const unsigned kept = memory.base + Shape::kKeptAt + static_cast<unsigned>(thread) * 16;

    PassPlace here(call, pass);
    float old[8][4] = {};  // the dQ of `here` so far
    fetch(kStages, 0);
    for (int step = 0; here.head < pass.heads; ++step) {
      tell(step + 2);

      const unsigned scores = memory.scores(step), keys = memory.keys(here.key_step);
      const int second = here.key_tile * kPassKeys + 64;
      const bool both = second < call.keys && here.query_tile >= pass.first_seeing(call, second);
      float dq[8][4];
      wait_turn(memory.scored(step), step / 2);
      wgmma_fence();
      wgmma_first<T, Walk::across_k, Walk::across_k>(dq, operand_at(scores), operand_at(keys));
#pragma unroll
      for (int k = 1; k < 4; ++k)
        wgmma<T, Walk::across_k, Walk::across_k>(
            dq, operand_at(scores + static_cast<unsigned>(k) * 2048),
            operand_at(keys + static_cast<unsigned>(k) * 2048));
      wgmma_commit();
      if (both) {
#pragma unroll
        for (int k = 4; k < 8; ++k)
          wgmma<T, Walk::across_k, Walk::across_k>(
              dq, operand_at(scores + static_cast<unsigned>(k) * 2048),
              operand_at(keys + static_cast<unsigned>(k) * 2048));
        wgmma_commit();
      }
      wgmma_wait<0>();
      keep(dq);

      const std::int64_t tile = here.query_tile;
      const unsigned kept_at =
          kept + static_cast<unsigned>(here.query_tile - first_kept) * Shape::kKeptBytes;
      const bool last = here.key_tile == pass.last_seen(call, here.query_tile);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dq[n][e] += old[n][e];
      }
      if (!last) {
        arrive_warp(memory.scores_used(step));
        if (here.query_tile >= first_kept) {
#pragma unroll
          for (int n = 0; n < 8; ++n)
            *shared_pointer<float4>(kept_at + static_cast<unsigned>(n) * 2048) =
                make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
        } else {
#pragma unroll
          for (int n = 0; n < 8; ++n)
            __stcg(partial + tile * (64 * 16) + n * 128,
                   make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]));
        }
      } else {
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
      }

      here.advance(call, pass);
      if (here.head >= pass.heads) break;
      // What earlier key tiles left for the next step; on its way until that step's product is
      // done.
      const bool fresh = here.key_tile == 0;
      const float4* const from = partial + static_cast<std::int64_t>(here.query_tile) * (64 * 16);
      const unsigned kept_from =
          kept + static_cast<unsigned>(here.query_tile - first_kept) * Shape::kKeptBytes;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float4 x = {};
        if (!fresh)
          x = here.query_tile >= first_kept
                  ? *shared_pointer<float4>(kept_from + static_cast<unsigned>(n) * 2048)
                  : __ldcg(from + n * 128);
        old[n][0] = x.x, old[n][1] = x.y, old[n][2] = x.z, old[n][3] = x.w;
      }
      // The owners need this step's tile until they have the scores of the next, for which they
      // need nothing from here that they have not been told of.
      tell(step + 3);
      fetch(step + 1 + kStages, here.key_step);
    }
  }
};

}  // namespace fovea::cuda
