#pragma once
// The ordered backward kernel (ordered.cuh) of a band, where a key tile meets few query tiles: a
// block does one key tile after another, and brings the next one's operands in while it works. The
// number of the next one is drawn a few steps before it starts, so that neighbours of a head still
// start in their order; and the smallest number that is not done can always go on, since a block
// does its own in ascending order. Whoever adds the last dQ of a query tile makes its dq. Every key
// tile must be seen by some query.

#include "kernels/cuda/flash/ordered_helpers.cuh"
#include "kernels/cuda/flash/ordered_keys.cuh"

namespace fovea::cuda {

// The block's key tiles one after another, as one role of its threads sees them.
template <class Shape>
struct BandWalk {
  const OrderedMemory<Shape>& memory;
  int own = 0;
  OrderedPlace<Shape> place;

  __device__ __forceinline__ explicit BandWalk(const OrderedMemory<Shape>& m) : memory(m) {
    look();
  }
  __device__ __forceinline__ void look() {
    memory.wait_for_place(own);
    place = *shared_pointer<OrderedPlace<Shape>>(memory.place(own));
  }
  __device__ __forceinline__ bool done() const { return place.steps == 0; }
  __device__ __forceinline__ void advance() {
    ++own;
    look();
  }
};

// Draws the block's key tile `own`, and tells all what it is; no steps: there is none. One thread.
template <class Shape>
__device__ __forceinline__ void band_draw(const FlashCall& call, const OrderedPass& pass,
                                          const OrderedMemory<Shape>& memory, int own) {
  const int number = atomicAdd(pass.next, 1);
  OrderedPlace<Shape> place;
  place.steps = 0;
  if (number < pass.order.heads * pass.order.tiles) place = OrderedPlace<Shape>(call, pass, number);
  *shared_pointer<OrderedPlace<Shape>>(memory.place(own)) = place;
  arrive_alone(memory.placed(own));
}

// One of the two warps that bring operands in: k, q, lse and delta, or v and dout. The first draws
// key tiles. From the next one to that of the oldest dQ that is not added, at most five are in
// work, so that kPlaces do.
template <class T, class Shape>
__device__ __forceinline__ void band_loads(const FlashCall& call, const OrderedPass& pass,
                                           const OrderedMemory<Shape>& memory, bool first) {
  constexpr int kStages = Shape::kStages, kColumns = Shape::kColumns;
  const bool draws = first && threadIdx.x == 0;
  if (draws) band_draw(call, pass, memory, 0);
  BandWalk<Shape> walk(memory);
  const OrderedPlace<Shape>& place = walk.place;
  OrderedStep next(call, place);
  int left = 0, fetched = 0;  // steps of the key tile; of all
  const auto fetch_own = [&] {
    if (walk.own > 1) wait_turn(memory.own_used(walk.own), walk.own / 2 - 1);
    const int from = place.key_tile * kOrderedKeys;
    if (first) {
#pragma unroll
      for (int p = 0; p < Shape::kPanels; ++p)
        load_rows_of_warp<T, kColumns, kOrderedKeys>(
            memory.keys(walk.own) + p * 2 * Shape::kHalfBytes,
            call.k.at<const T>(place.b, place.kv) + kColumns * p, call.k.row, from, call.keys,
            panel_width<kColumns>(call.width, p), call.key_tokens, place.b);
    } else {
#pragma unroll
      for (int p = 0; p < Shape::kValuePanels; ++p)
        load_rows_of_warp<T, 64, kOrderedKeys>(
            memory.values(walk.own) + p * 2 * Shape::kValueHalfBytes,
            call.v.at<const T>(place.b, place.kv) + 64 * p, call.v.row, from, call.keys,
            panel_width<64>(call.value_width, p), call.key_tokens, place.b);
    }
  };
  // The next step into a stage, with its key tile if it is the first one's.
  const auto fetch = [&](int stage) {
    if (left == 0) {
      left = place.steps;
      fetch_own();
    }
    ordered_fetch<T>(call, memory, place.b, next, stage, first);
    ++fetched;
    if (draws && left == min(2, place.steps)) band_draw(call, pass, memory, walk.own + 1);
    if (--left > 0) {
      next.advance(place);
      return;
    }
    walk.advance();
    next = OrderedStep(call, place);
  };
  const auto tell = [&](int stage) {
    wgmma_written();
    arrive_warp(memory.loaded(stage));
  };
  // One place fetches, which is long code: the first turns only fill the stages.
  Ring<kStages> filling, telling;
#pragma unroll 1
  for (int turn = 0; turn < kStages || turn - kStages + 1 < fetched; ++turn, filling.advance()) {
    if (turn >= kStages) {
      telling.advance();
      wait_copies<kStages - 2>();
      tell(telling.place);
    }
    if (!walk.done()) {
      if (turn >= kStages) wait_turn(memory.used(filling.place), filling.round - 1);
      fetch(filling.place);
    }
    commit_copies();
    if (turn == kStages - 1 && fetched > 0) {
      wait_copies<kStages - 1>();
      tell(0);
    }
  }
}

// dq of a query tile from the dQ of a step, the last one of its sum, and what came before. One
// warp, for the `turn`-th time that there was something before.
template <class T, class Shape>
__device__ __forceinline__ void band_finish(const FlashCall& call, const OrderedPass& pass,
                                            const OrderedMemory<Shape>& memory,
                                            const OrderedPlace<Shape>& place,
                                            const OrderedStep& here, int step, int& turn) {
  constexpr int kBlocks = Shape::kWidth / 8, kBlocksOfHalf = kBlocks / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32, i = step & 1;
  const std::int64_t tile =
      static_cast<std::int64_t>(place.b * call.heads + here.head) * pass.query_tiles + here.tile;
  const unsigned earlier =
      memory.base + Shape::kEarlierAt + static_cast<unsigned>(i) * Shape::kSumBytes;
  const unsigned finished =
      memory.base + Shape::kFinishedAt + static_cast<unsigned>(i) * Shape::kFinishedBytes;
  const int own = place.turn(call, here.tile);
  if (own > 0 && lane == 0) {
    wait_for(pass.turns + tile, own);
    asm volatile("fence.proxy.async;" ::: "memory");
    arrive_alone_for<Shape::kSumBytes>(memory.earlier(i));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(earlier),
        "l"(pass.partial + tile * (kOrderedQueries * Shape::kWidth)), "n"(Shape::kSumBytes),
        "r"(memory.earlier(i))
        : "memory");
  }
  __syncwarp();
  wait_turn(memory.summed(step), step / 2);
  if (own > 0) wait_turn(memory.earlier(i), turn++);
#pragma unroll 1
  for (int rows = 0; rows < 4; ++rows) {
    float dq[1][kBlocks][4];
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      const unsigned at = static_cast<unsigned>(n / kBlocksOfHalf) * (Shape::kSumBytes / 2) +
                          static_cast<unsigned>(n % kBlocksOfHalf) * 2048 +
                          static_cast<unsigned>(rows * 32 + lane) * 16;
      float4 x = *shared_pointer<float4>(memory.sums(step) + at);
      if (own > 0) {
        const float4 y = *shared_pointer<float4>(earlier + at);
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
      }
      dq[0][n][0] = x.x * call.scale, dq[0][n][1] = x.y * call.scale;
      dq[0][n][2] = x.z * call.scale, dq[0][n][3] = x.w * call.scale;
    }
    store_rows<T, Shape::kWidth, 1>(finished, 0, call.dq.at<T>(place.b, here.head), call.dq.row,
                                    here.tile * kOrderedQueries + rows * 16, call.queries,
                                    call.width, dq);
    __syncwarp();
  }
  wgmma_written();  // what was read here is written by a bulk copy next
  arrive_warp(memory.sums_used(step));
}

// One of the two warps that add dQ, of even and of odd steps.
template <class T, class Shape>
__device__ __forceinline__ void band_adds(const FlashCall& call, const OrderedPass& pass,
                                          const OrderedMemory<Shape>& memory, int odd) {
  int step = 0, finished = 0;
#pragma unroll 1
  for (BandWalk<Shape> walk(memory); !walk.done(); walk.advance()) {
    const OrderedPlace<Shape>& place = walk.place;
    OrderedStep here(call, place);
#pragma unroll 1
    for (const int end = step + place.steps; step < end; ++step, here.advance(place)) {
      if ((step & 1) != odd) continue;
      if (place.finishes(call, pass, here.tile)) {
        band_finish<T>(call, pass, memory, place, here, step, finished);
        continue;
      }
      if (threadIdx.x % 32 == 0) ordered_add(call, pass, memory, place, here, step);
      __syncwarp();
    }
  }
}

template <class T, class Shape>
__global__ __launch_bounds__(kOrderedThreads, 1) void flash_ordered_band_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ OrderedPass pass) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const OrderedMemory<Shape> memory;
  if (threadIdx.x == 0) memory.init();
  __syncthreads();
  const int warp = uniform_warp(), group = warp / 4;
  if (group == 0) {
    leave_registers<Shape::kHelperRegisters>();
    if (warp < 2)
      band_loads<T, Shape>(call, pass, memory, warp == 0);
    else
      band_adds<T, Shape>(call, pass, memory, warp - 2);
  } else {
    take_registers<Shape::kOwnerRegisters>();
    BandWalk<Shape> walk(memory);
    if (walk.done()) return;
    OrderedOwner<T, Shape> owner(call, pass, memory, walk.place, group - 1);
    float s[8][4];
    owner.start(s);
#pragma unroll 1
    while (true) {
      owner.make(s);
      walk.advance();
      if (walk.done()) return;
      owner.go_on(walk.place);
    }
  }
#endif
}

}  // namespace fovea::cuda
