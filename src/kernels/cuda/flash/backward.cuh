#pragma once
// The tensor-core backward kernel: two passes over pairs of tiles, both in one launch.
//
// A block of four warps owns 64 kM tokens: keys (it makes dK and dV) or queries (it makes dQ). Each
// warp holds two operands of its 16 kM own tokens for good, k and v or q and dout, the first in
// registers, and the other side streams through shared memory, 64 tokens at a time and 16 at once:
//   P = exp(A B^T - lse), dS = P (A' B'^T - delta), then dA += dS B, dA' += P B'
// with A, A', B, B' = k, v, q, dout for keys (scores stand transposed) and q, dout, k, v for
// queries (no dA'). Seven products where one pass would need five, but nothing crosses a warp: no
// atomics, no accumulator in global memory, no order to keep between blocks, and every score is an
// operand in the registers where it was made. Every sum has one order: the result is a pure
// function of the shape and the values. The products start from -lse / scale and -delta instead of
// 0. Where dK and dV of a warp do not fit the registers together, different blocks make them (eight
// products). A masked kernel also follows a plan: dQ by its lists, dK and dV by their transpose.
// Traffic: every operand once a tile of the other side that sees it, from L2 in all but the
// first use; dq, dk, dv once.

#include "kernels/cuda/flash/backward_tile.cuh"

namespace fovea::cuda {

// Which blocks a launch has: in each section of key/value heads, first those that own keys, then
// those that own queries.
struct BackwardOrder {
  TileOrder keys, queries;  // no tiles: gradient not wanted
  int blocks_of_section = 0;
};

template <class T, class Shape, bool kMasked>
__global__ __launch_bounds__(kFlashThreads, Shape::kBlocks) void flash_backward_kernel(
    const __grid_constant__ FlashCall call, const BackwardOrder order) {
  const int block = static_cast<int>(blockIdx.x), section = block / order.blocks_of_section;
  const int in_section = block - section * order.blocks_of_section;
  const int first = section * order.keys.section;
  const int heads = min(order.keys.section, order.keys.heads - first);
  // Split: each key tile twice, for dK and for dV.
  const int key_blocks = heads * order.keys.tiles;
  // Under causality the first keys are seen by most queries, and the last queries see most keys.
  if (in_section < key_blocks) {
    const auto place = order.keys.at(first * order.keys.tiles + in_section);
    const int b = place.head / call.kv_heads, h = place.head % call.kv_heads;
    if constexpr (!Shape::kSplit)
      gradient_tile<T, Shape, kMasked, Makes::keys>(call, b, h, place.tile);
    else if (place.tile % 2 == 0)
      gradient_tile<T, Shape, kMasked, Makes::first_of_keys>(call, b, h, place.tile / 2);
    else
      gradient_tile<T, Shape, kMasked, Makes::second_of_keys>(call, b, h, place.tile / 2);
  } else {
    const auto place = order.queries.at(section * order.queries.section * order.queries.tiles +
                                        in_section - key_blocks);
    gradient_tile<T, Shape, kMasked, Makes::queries>(call, place.head / call.heads,
                                                     place.head % call.heads,
                                                     order.queries.tiles - 1 - place.tile);
  }
}

template <class T, class Shape, bool kMasked>
void launch_backward(StreamRef stream, const FlashCall& call) {
  constexpr unsigned kBytes = Shape::bytes(kMasked);
  const bool keys = call.dk.data != nullptr || call.dv.data != nullptr;
  const bool queries = call.dq.data != nullptr;
  BackwardOrder order;
  order.keys.heads = call.batch * call.kv_heads;
  order.keys.tiles = keys ? (call.keys + Shape::kOwnKeys - 1) / Shape::kOwnKeys : 0;
  if (Shape::kSplit) order.keys.tiles *= 2;
  order.keys.section =
      section_heads((std::int64_t{call.keys} + std::int64_t{call.queries} * call.group) * 2 *
                        (Shape::kWidth + Shape::kValueWidth),
                    order.keys.heads);
  order.queries.heads = call.batch * call.heads;
  order.queries.tiles = queries ? (call.queries + Shape::kOwnQueries - 1) / Shape::kOwnQueries : 0;
  order.queries.section = order.keys.section * call.group;
  order.blocks_of_section =
      order.keys.section * (order.keys.tiles + order.queries.tiles * call.group);
  const int blocks = order.keys.heads * (order.keys.tiles + order.queries.tiles * call.group);
  if (blocks == 0) return;
  launch_shared(stream, "flash_backward", flash_backward_kernel<T, Shape, kMasked>,
                static_cast<unsigned>(blocks), kFlashThreads, kBytes, call, order);
}

// Masks need registers, so masked calls may have a shape of their own.
template <class Shape, class MaskedShape>
void launch_backward(StreamRef stream, const FlashCall& call, DType dtype) {
  static_assert(Shape::kWidth == MaskedShape::kWidth &&
                Shape::kValueWidth == MaskedShape::kValueWidth);
  const bool masked = call.masked();
  if (dtype == DType::bf16)
    masked ? launch_backward<bf16, MaskedShape, true>(stream, call)
           : launch_backward<bf16, Shape, false>(stream, call);
  else
    masked ? launch_backward<f16, MaskedShape, true>(stream, call)
           : launch_backward<f16, Shape, false>(stream, call);
}

}  // namespace fovea::cuda
