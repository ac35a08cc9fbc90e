#pragma once
// The two warpgroups of the ordered backward kernel (ordered.cuh) that own keys, 64 each.
//
// Products of a step in the order of their groups: S^T and dP^T, then dV, dK and dQ. S^T of the
// next step is under way while dQ is handed over, dP^T while exponentials are taken.

#include "kernels/cuda/flash/ordered_plan.cuh"

namespace fovea::cuda {

// Starts d = own rows by query rows, both panels of `kColumns`, summed over the width.
template <class T, int kColumns, int kPanels>
__device__ __forceinline__ void ordered_scores(float (&d)[8][4], unsigned own, unsigned queries) {
  constexpr int kRowBytes = kColumns * 2;
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < kPanels; ++p) {
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) {
      const unsigned at = static_cast<unsigned>(i) * 32;
      const unsigned long long a =
          operand_of_rows<kRowBytes>(own + static_cast<unsigned>(p * 128 * kRowBytes) + at);
      const unsigned long long b =
          operand_of_rows<kRowBytes>(queries + static_cast<unsigned>(p * 64 * kRowBytes) + at);
      if (p == 0 && i == 0)
        wgmma_into<T, false, Walk::along_k, Walk::along_k>(d, a, b);
      else
        wgmma_into<T, true, Walk::along_k, Walk::along_k>(d, a, b);
    }
  }
  wgmma_commit();
}

// Starts d += own scores by query rows, summed over the queries.
template <class T, int kColumns, int kPanels>
__device__ __forceinline__ void ordered_sums(float (&d)[kPanels][1][kColumns / 8][4],
                                             const unsigned (&scores)[4][4], unsigned queries) {
  constexpr int kRowBytes = kColumns * 2;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      wgmma<T, Walk::across_k>(d[p][0], scores[i],
                               operand_of_rows<kRowBytes>(
                                   queries + static_cast<unsigned>((p * 64 + i * 16) * kRowBytes)));
  }
  wgmma_commit();
}

// All 256 threads that own keys.
__device__ __forceinline__ void sync_owners() {
  asm volatile("bar.sync 1, 256;" ::: "memory");
}

// The owner of the first or second `half` of the keys.
template <class T, class Shape>
struct OrderedOwner {
  using Tile = typename Shape::Tile;
  using ValueTile = typename Shape::ValueTile;
  static constexpr int kPanels = Shape::kPanels, kValuePanels = Shape::kValuePanels;
  static constexpr int kColumns = Shape::kColumns, kSumColumns = Shape::kSumColumns;
  static constexpr unsigned kPanelBytes = 2 * Shape::kHalfBytes;
  static constexpr unsigned kValuePanelBytes = 2 * Shape::kValueHalfBytes;
  using Sums = float[kPanels][1][kColumns / 8][4];
  using ValueSums = float[kValuePanels][1][8][4];
  using QuerySums = float[kSumColumns / 8][4];

  const FlashCall& call;
  const OrderedPass& pass;
  const OrderedMemory<Shape>& memory;
  OrderedPlace<Shape> place;
  int own = 0, begin = 0;  // of the block's key tiles and of its steps: those that came before
  int half, warp, lane, first_key, warp_first;
  unsigned keys, values;
  Ring<Shape::kStages> stage;

  __device__ __forceinline__ OrderedOwner(const FlashCall& c, const OrderedPass& o,
                                          const OrderedMemory<Shape>& m,
                                          const OrderedPlace<Shape>& at, int which)
      : call(c),
        pass(o),
        memory(m),
        place(at),
        half(which),
        warp(uniform_warp() % 4),
        lane(static_cast<int>(threadIdx.x) % 32),
        first_key(at.key_tile * kOrderedKeys + 64 * half),
        warp_first(first_key + warp * 16),
        keys(m.keys(0) + static_cast<unsigned>(half) * Shape::kHalfBytes),
        values(m.values(0) + static_cast<unsigned>(half) * Shape::kValueHalfBytes) {}

  // Each warp brings its own rows of k and v.
  __device__ __forceinline__ void load() const {
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      load_rows_of_warp<T, kColumns, 16>(
          keys + p * kPanelBytes + static_cast<unsigned>(warp * 16 * Tile::kRowBytes),
          call.k.at<const T>(place.b, place.kv) + kColumns * p, call.k.row, warp_first, call.keys,
          panel_width<kColumns>(call.width, p), call.key_tokens, place.b);
#pragma unroll
    for (int p = 0; p < kValuePanels; ++p)
      load_rows_of_warp<T, 64, 16>(
          values + p * kValuePanelBytes + static_cast<unsigned>(warp * 16 * ValueTile::kRowBytes),
          call.v.at<const T>(place.b, place.kv) + 64 * p, call.v.row, warp_first, call.keys,
          panel_width<64>(call.value_width, p), call.key_tokens, place.b);
    commit_copies();
    wait_copies<0>();
    wgmma_written();
    sync_owners();
  }

  // The lane's part of a plane of the rows of a stage.
  __device__ __forceinline__ float2 row_pair(int plane, int n) const {
    return *shared_pointer<float2>(memory.rows(stage.place) +
                                   static_cast<unsigned>(plane) * (Shape::kRowBytes / 2) +
                                   static_cast<unsigned>(8 * n + lane % 4 * 2) * 4);
  }
  // s = P^T of the scores s, and p the same as operand.
  __device__ __forceinline__ void exponentials(float (&s)[8][4], unsigned (&p)[4][4],
                                               int query_tile) const {
    const int first = query_tile * kOrderedQueries;
    const float scale = call.scale * kLog2E;
    const bool edge =
        first_key + 64 > call.keys || (call.causal && first_key + 63 > first + call.offset);
    if (Shape::kBanded &&
        (edge || first_key < first + kOrderedQueries - 1 + call.offset - call.span)) {
      // How far a key lies behind the last one that the lane's first query sees.
      unsigned ahead[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int key = warp_first + lane / 4 + 8 * r;
        ahead[r] = key < call.keys ? static_cast<unsigned>(first + lane % 4 * 2 + call.offset - key)
                                   : 1u << 31;
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (ahead[e / 2] + static_cast<unsigned>(8 * n + e % 2) >
              static_cast<unsigned>(call.span))
            s[n][e] = __int_as_float(0xff800000);
        }
      }
    } else if (!Shape::kBanded && edge) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = warp_first + lane / 4 + e / 2 * 8;
          const int query = first + 8 * n + lane % 4 * 2 + e % 2;
          if (key >= call.keys || (call.causal && key > query + call.offset))
            s[n][e] = __int_as_float(0xff800000);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 lse = row_pair(0, n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[n][e] = exp2_fast(fmaf(s[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
    }
    as_operands<T>(p, s);
    keep(p);
  }
  // dS^T of P^T and dP^T: an operand, and in shared memory.
  __device__ __forceinline__ void gradients(unsigned (&ds)[4][4], float (&dp)[8][4],
                                            const float (&s)[8][4], int step) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 delta = row_pair(1, n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        dp[n][e] = (dp[n][e] + (e % 2 == 0 ? delta.x : delta.y)) * s[n][e];
    }
    as_operands<T>(ds, dp);
    keep(ds);
    const unsigned to = memory.scores(step) + static_cast<unsigned>(half) * Shape::kValueHalfBytes +
                        static_cast<unsigned>(warp * 16 * ValueTile::kRowBytes) +
                        ValueTile::lane_by_rows(lane);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      stmatrix(ValueTile::block(to, 0, i), ds[i]);
    wgmma_written();
  }
  // Whether no query of the tile sees a key of the half.
  __device__ __forceinline__ bool is_hidden(int query_tile) const {
    const int last = query_tile * kOrderedQueries + call.offset;  // that its first query sees
    return first_key > last + kOrderedQueries - 1 || first_key + 63 < last - call.span;
  }
  // dS^T = 0.
  __device__ __forceinline__ void no_gradients(int step) const {
    const unsigned to = memory.scores(step) + static_cast<unsigned>(half) * Shape::kValueHalfBytes +
                        threadIdx.x % 128 * 16;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
      *shared_pointer<uint4>(to + i * 2048) = uint4{};
    wgmma_written();
  }
  // Starts dq = dS K, half of the columns each: a panel, or half of the only one.
  __device__ __forceinline__ void start_queries(QuerySums& dq, int step) const {
    const unsigned scores = memory.scores(step);
    const unsigned panel = memory.keys(own) + static_cast<unsigned>(half) *
                                                  (kPanels == 2 ? kPanelBytes : kSumColumns * 2);
    wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      const unsigned long long a = operand_at(scores + k * 2048);
      const unsigned long long b =
          operand_of_rows<Tile::kRowBytes>(panel + k * 16 * Tile::kRowBytes);
      if (k == 0)
        wgmma_into<T, false, Walk::across_k, Walk::across_k>(dq, a, b);
      else
        wgmma_into<T, true, Walk::across_k, Walk::across_k>(dq, a, b);
    }
    wgmma_commit();
  }
  // Gives the dQ of a step to the thread that adds it.
  __device__ __forceinline__ void hand_over(const QuerySums& dq, int step) const {
    if (step > 1) wait_turn(memory.sums_used(step), step / 2 - 1);
    const unsigned sums = memory.sums(step) + static_cast<unsigned>(half) * (Shape::kSumBytes / 2) +
                          threadIdx.x % 128 * 16;
#pragma unroll
    for (unsigned n = 0; n < kSumColumns / 8; ++n)
      *shared_pointer<float4>(sums + n * 2048) =
          make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
    wgmma_written();
    arrive_warp(memory.summed(step));
  }
  // Whether the block has another key tile.
  __device__ __forceinline__ bool goes_on() const {
    memory.wait_for_place(own + 1);
    return shared_pointer<OrderedPlace<Shape>>(memory.place(own + 1))->steps > 0;
  }
  // The next stage, or in the end the same again: what is made of it then is not used. Returns the
  // keys that are multiplied by its queries.
  __device__ __forceinline__ unsigned next_stage(int step) {
    const bool last = step + 1 == begin + place.steps;
    if (!last || (Shape::kAhead && goes_on())) {
      stage.advance();
      wait_turn(memory.loaded(stage.place), stage.round);
    }
    return Shape::kAhead && last ? keys - memory.keys(own) + memory.keys(own + 1) : keys;
  }

  // dP^T while exponentials are taken, S^T of the next step while dQ is handed over.
  // Begins with S^T of the first step, and ends with that of the next key tile's.
  __device__ __forceinline__ void walk(float (&s)[8][4], Sums& dk, ValueSums& dv) {
    OrderedStep here(call, place);
#pragma unroll 1
    for (int step = begin; step < begin + place.steps; ++step, here.advance(place)) {
      float dp[8][4];
      unsigned p[4][4], ds[4][4];
      if (Shape::kAhead && is_hidden(here.tile)) {
        no_gradients(step);
      } else {
        ordered_scores<T, 64, kValuePanels>(dp, values, memory.douts(stage.place));
        exponentials(s, p, here.tile);
        ordered_sums<T, 64, kValuePanels>(dv, p, memory.douts(stage.place));
        wgmma_wait<1>();
        keep(dp);
        gradients(ds, dp, s, step);
        wgmma_wait<0>();  // the dV: its P gives room
        ordered_sums<T, kColumns, kPanels>(dk, ds, memory.queries(stage.place));
      }
      // Whoever comes here has done with the scores of the step before.
      sync_owners();
      QuerySums dq;
      start_queries(dq, step);
      wgmma_wait<1>();  // the dK: its dS gives room
      const int done = stage.place;
      const unsigned next_keys = next_stage(step);
      ordered_scores<T, kColumns, kPanels>(s, next_keys, memory.queries(stage.place));
      wgmma_wait<1>();
      keep(dq);
      arrive_warp(memory.used(done));
      hand_over(dq, step);
      wgmma_wait<0>();
      keep(s);
    }
  }

  __device__ __forceinline__ void run() {
    load();
    float s[8][4];
    start(s);
    make(s);
  }
  // S^T of the first step of all.
  __device__ __forceinline__ void start(float (&s)[8][4]) const {
    wait_turn(memory.loaded(0), 0);
    ordered_scores<T, kColumns, kPanels>(s, keys, memory.queries(0));
    wgmma_wait<0>();
    keep(s);
  }
  // The next key tile of a band: what it was before, and what it is now.
  __device__ __forceinline__ void go_on(const OrderedPlace<Shape>& at) {
    arrive_warp(memory.own_used(own));
    ++own, begin += place.steps;
    place = at;
    set_place();
  }
  __device__ __forceinline__ void set_place() {
    first_key = place.key_tile * kOrderedKeys + 64 * half;
    warp_first = first_key + warp * 16;
    keys = memory.keys(own) + static_cast<unsigned>(half) * Shape::kHalfBytes;
    values = memory.values(own) + static_cast<unsigned>(half) * Shape::kValueHalfBytes;
  }

  // dK and dV of the key tile, which is there.
  __device__ __forceinline__ void make(float (&s)[8][4]) {
    Sums dk = {};
    ValueSums dv = {};
    walk(s, dk, dv);
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      keep(dk[p][0]);
#pragma unroll
    for (int p = 0; p < kValuePanels; ++p)
      keep(dv[p][0]);

    // The operands' room takes the results.
    sync_owners();
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dk[p][0][n][e] *= call.scale;
      }
      store_rows<T, kColumns, 1>(
          keys + p * kPanelBytes, warp * 16, call.dk.at<T>(place.b, place.kv) + kColumns * p,
          call.dk.row, warp_first, call.keys, panel_width<kColumns>(call.width, p), dk[p]);
    }
#pragma unroll
    for (int p = 0; p < kValuePanels; ++p)
      store_rows<T, 64, 1>(values + p * kValuePanelBytes, warp * 16,
                           call.dv.at<T>(place.b, place.kv) + 64 * p, call.dv.row, warp_first,
                           call.keys, panel_width<64>(call.value_width, p), dv[p]);
  }
};

}  // namespace fovea::cuda
