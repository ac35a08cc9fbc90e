#pragma once
// The backward kernel of one pass for any number of heads, on sm_90a: five products a pair
// of tiles, where backward.cuh needs seven.
//
// A block owns 128 keys of a key head and walks the query tiles that see them, 64 queries at once,
// the last one first. Two warpgroups own 64 keys each and hold dK and dV:
//   P^T = exp(K Q^T - lse), dS^T = P^T (V dO^T - delta), dV += P^T dO, dK += dS^T Q
// dS^T meets in shared memory, and each of them makes one panel of the step's dQ = dS K, in f32. Of
// the third warpgroup two warps bring queries in, and two add the dQ of every other step to that of
// the query tile in global memory (cp.reduce.async.bulk), after those of all key tiles before their
// own: a counter a query tile says whose turn it is. So every sum has one order, ascending keys,
// and the result is a pure function of the shape and the values. A block waits only for blocks of
// smaller number; numbers are given as blocks start, so some block can always go on. Neighbours of
// a head walk one step behind each other.
//
// Traffic: k, v, dk, dv once; q, dout once a key tile that sees them; 4 bytes added in L2 an
// element of dQ and key tile; then the f32 dQ once more.

#include "kernels/cuda/flash/ordered_band.cuh"

namespace fovea::cuda {

// One of the two warps that bring query tiles in: q with lse and delta, or dout.
template <class T, class Shape>
__device__ __forceinline__ void ordered_loads(const FlashCall& call,
                                              const OrderedMemory<Shape>& memory,
                                              const OrderedPlace<Shape>& place, bool queries) {
  constexpr int kStages = Shape::kStages;
  OrderedStep next(call, place);
  const auto fetch = [&](int stage) {
    ordered_fetch<T>(call, memory, place.b, next, stage, queries);
    next.advance(place);
  };
  for (int i = 0; i < kStages; ++i) {
    if (i < place.steps) fetch(i);
    commit_copies();
  }
  wait_copies<kStages - 1>();
  wgmma_written();
  arrive_warp(memory.loaded(0));
  Ring<kStages> filling, telling;
#pragma unroll 1
  for (int step = 0; step + 1 < place.steps; ++step, filling.advance()) {
    telling.advance();
    wait_copies<kStages - 2>();
    wgmma_written();
    arrive_warp(memory.loaded(telling.place));
    if (step + kStages < place.steps) {
      wait_turn(memory.used(filling.place), filling.round);
      fetch(filling.place);
    }
    commit_copies();
  }
}

// One of the two threads that add dQ, of even and of odd steps.
template <class Shape>
__device__ __forceinline__ void ordered_adds(const FlashCall& call, const OrderedPass& pass,
                                             const OrderedMemory<Shape>& memory,
                                             const OrderedPlace<Shape>& place, int odd) {
  OrderedStep here(call, place);
  if (odd != 0) here.advance(place);
#pragma unroll 1
  for (int step = odd; step < place.steps; step += 2) {
    ordered_add(call, pass, memory, place, here, step);
    here.advance(place);
    here.advance(place);
  }
}

template <class T, class Shape>
__global__ __launch_bounds__(kOrderedThreads, 1) void flash_ordered_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ OrderedPass pass) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const OrderedMemory<Shape> memory;
  if (threadIdx.x == 0) {
    memory.init();
    *shared_pointer<int>(memory.number()) = atomicAdd(pass.next, 1);
  }
  __syncthreads();
  const OrderedPlace<Shape> place(call, pass, *shared_pointer<int>(memory.number()));
  const int warp = uniform_warp(), group = warp / 4;
  if (group == 0) {
    leave_registers<Shape::kHelperRegisters>();
    if (warp < 2)
      ordered_loads<T, Shape>(call, memory, place, warp == 0);
    else if (threadIdx.x % 32 == 0)
      ordered_adds<Shape>(call, pass, memory, place, warp - 2);
  } else {
    take_registers<Shape::kOwnerRegisters>();
    OrderedOwner<T, Shape>(call, pass, memory, place, group - 1).run();
  }
#endif
}

// Half of the columns of a query tile's dQ, out of their threads' order.
template <class T, class Shape>
__global__ __launch_bounds__(kFlashThreads) void flash_ordered_queries_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ OrderedPass pass) {
  constexpr int kColumns = Shape::kSumColumns;
  using Tile = Swizzled<kColumns>;
  const unsigned room = tile_base();
  const std::int64_t tile = blockIdx.x / 2;
  const int half = static_cast<int>(blockIdx.x % 2), warp = uniform_warp();
  const int head = static_cast<int>(tile / pass.query_tiles);
  const int first = static_cast<int>(tile % pass.query_tiles) * kOrderedQueries;
  const float4* from =
      reinterpret_cast<const float4*>(pass.partial + (2 * tile + half) * (Shape::kSumBytes / 8)) +
      threadIdx.x;
  float dq[1][kColumns / 8][4];
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const float4 x = from[n * kFlashThreads];
    dq[0][n][0] = x.x * call.scale, dq[0][n][1] = x.y * call.scale;
    dq[0][n][2] = x.z * call.scale, dq[0][n][3] = x.w * call.scale;
  }
  store_rows<T, kColumns, 1>(
      room, warp * 16, call.dq.at<T>(head / call.heads, head % call.heads) + kColumns * half,
      call.dq.row, first + warp * 16, call.queries, panel_width<kColumns>(call.width, half), dq);
}

// Key heads at work at once: as many as fit the L2 cache, but so many at least that neighbours need
// not wait long for their turns.
constexpr int kOrderedSection = 8;

template <class Shape>
int ordered_section(const FlashCall& call, int heads) {
  const int fit = section_heads(
      std::int64_t{call.keys} * 2 * (Shape::kWidth + Shape::kValueWidth) +
          std::int64_t{call.queries} * call.group * 2 * (3 * Shape::kWidth + Shape::kValueWidth),
      heads);
  const int least = heads < kOrderedSection ? heads : kOrderedSection;
  return fit > least ? fit : least;
}

template <class T, class Shape>
void launch_ordered(StreamRef stream, const FlashCall& call, int section = 0) {
  OrderedPass pass;
  pass.order.heads = call.batch * call.kv_heads;
  pass.order.tiles = (call.keys + kOrderedKeys - 1) / kOrderedKeys;
  pass.order.section = section > 0 ? section : ordered_section<Shape>(call, pass.order.heads);
  pass.query_tiles = (call.queries + kOrderedQueries - 1) / kOrderedQueries;
  pass.partial = call.partial;
  const std::int64_t tiles = static_cast<std::int64_t>(call.batch) * call.heads * pass.query_tiles;
  pass.turns = reinterpret_cast<int*>(pass.partial + tiles * (kOrderedQueries * Shape::kWidth));
  pass.next = pass.turns + tiles;
  check_call(cudaMemsetAsync(pass.turns, 0, sizeof(int) * static_cast<std::size_t>(tiles + 1),
                             stream_of(stream)),
             "flash_backward");
  int blocks = pass.order.heads * pass.order.tiles;
  const auto kernel = [] {
    if constexpr (Shape::kAhead)
      return flash_ordered_band_kernel<T, Shape>;
    else
      return flash_ordered_kernel<T, Shape>;
  }();
  if (Shape::kAhead && blocks > multiprocessors()) blocks = multiprocessors();
  launch_shared(stream, "flash_backward", kernel, static_cast<unsigned>(blocks), kOrderedThreads,
                Shape::kBytes, call, pass);
  if constexpr (Shape::kAhead) return;  // that kernel makes dq too
  flash_ordered_queries_kernel<T, Shape>
      <<<static_cast<unsigned>(2 * tiles), kFlashThreads,
         kOrderedQueries * Shape::kSumColumns * 2 + Shape::ValueTile::kAlignment,
         stream_of(stream)>>>(call, pass);
  check_launch("flash_backward");
}

template <class Shape>
void launch_ordered(StreamRef stream, const FlashCall& call, DType dtype) {
  if (dtype == DType::bf16)
    launch_ordered<bf16, Shape>(stream, call);
  else
    launch_ordered<f16, Shape>(stream, call);
}

}  // namespace fovea::cuda
