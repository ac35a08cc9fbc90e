#pragma once
// What the third warpgroup of the ordered backward kernels does: bringing query tiles in, and
// adding their dQ.

#include "kernels/cuda/flash/ordered_plan.cuh"

namespace fovea::cuda {

// Starts copying a query tile into a stage, for one of two warps: q with lse and delta, or dout.
template <class T, class Shape>
__device__ __forceinline__ void ordered_fetch(const FlashCall& call,
                                              const OrderedMemory<Shape>& memory, int b,
                                              const OrderedStep& at, int stage, bool queries) {
  constexpr int kColumns = Shape::kColumns;
  const int lane = static_cast<int>(threadIdx.x) % 32, first = at.tile * kOrderedQueries;
  if (queries) {
#pragma unroll
    for (int p = 0; p < Shape::kPanels; ++p)
      load_rows_of_warp<T, kColumns, 64>(memory.queries(stage) + p * Shape::kHalfBytes,
                                         call.q.at<const T>(b, at.head) + kColumns * p, call.q.row,
                                         first, call.queries, panel_width<kColumns>(call.width, p),
                                         call.query_tokens, b);
    const std::int64_t plane =
        static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
    constexpr int kPieces = kOrderedQueries / 4;  // 16 bytes each, of one plane
    const float* rows = call.rows + (lane < kPieces ? 0 : plane) +
                        static_cast<std::int64_t>(b * call.heads + at.head) * call.padded_queries +
                        first;
    copy_async(memory.rows(stage) + static_cast<unsigned>(lane) * 16, rows + lane % kPieces * 4,
               true);
  } else {
#pragma unroll
    for (int p = 0; p < Shape::kValuePanels; ++p)
      load_rows_of_warp<T, 64, 64>(memory.douts(stage) + p * Shape::kValueHalfBytes,
                                   call.dout.at<const T>(b, at.head) + 64 * p, call.dout.row, first,
                                   call.queries, panel_width<64>(call.value_width, p),
                                   call.query_tokens, b);
  }
}

// Waits until a query tile has had so many key tiles.
__device__ __forceinline__ void wait_for(const int* turn, int wanted) {
  int had;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(had) : "l"(turn) : "memory");
  } while (had != wanted);
}

// Adds the dQ of a step to that of its query tile, in its turn. One thread.
template <class Shape>
__device__ __forceinline__ void ordered_add(const FlashCall& call, const OrderedPass& pass,
                                            const OrderedMemory<Shape>& memory,
                                            const OrderedPlace<Shape>& place,
                                            const OrderedStep& here, int step) {
  const std::int64_t tile =
      static_cast<std::int64_t>(place.b * call.heads + here.head) * pass.query_tiles + here.tile;
  int* turn = pass.turns + tile;
  const int own = place.turn(call, here.tile);
  // The turn first: asking for it takes longer than seeing that the sums are there.
  wait_for(turn, own);
  wait_turn(memory.summed(step), step / 2);
  float* to = pass.partial + tile * (kOrderedQueries * Shape::kWidth);
  if (own == 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(memory.sums(step)), "n"(Shape::kSumBytes)
                 : "memory");
  else
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(memory.sums(step)), "n"(Shape::kSumBytes)
        : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  arrive_alone(memory.sums_used(step));
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(own + 1) : "memory");
}

}  // namespace fovea::cuda
