#pragma once
// The backward kernel of one pass, for heads up to 64 wide on sm_90a: five products a pair of
// tiles, where backward.cuh needs seven.
//
// A block walks whole heads: the key tiles of a head in order (128 keys), and for each the query
// tiles that see it in order (64 queries). Two warpgroups own 64 keys each and hold dK and dV:
//   P^T = exp(K Q^T - lse), dS^T = P^T (V dO^T - delta), dV += P^T dO, dK += dS^T Q
// They leave dS^T in shared memory for a third warpgroup, which adds dS K to the dQ of the query
// tile, and which also brings every operand in. The dQ of a head, in f32, is kept between two
// visits by the threads that made it: the last tiles, which are visited most, in shared memory, the
// others in a scratch that each block uses again for every head, so that it stays in the L2 cache.
// So every sum is made by one thread in one order: no atomics, and the result is a pure function of
// the shape and the values. The number of blocks decides nothing but the time.
//
// Traffic: k, v, dq, dk, dv once; q, dout once a key tile that sees them, 512 bytes of scratch a
// query and key tile but for the tiles kept in shared memory; all but the first use from L2.

#include "kernels/cuda/flash/one_pass_keys.cuh"
#include "kernels/cuda/flash/one_pass_queries.cuh"

namespace fovea::cuda {

template <class T, class Shape>
__global__ __launch_bounds__(kPassThreads,
                             1) void flash_one_pass_kernel(const __grid_constant__ FlashCall call,
                                                           const __grid_constant__ OnePass pass) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const OnePassMemory<Shape> memory;
  if (threadIdx.x == 0) memory.init();
  __syncthreads();
  const int group = uniform_warp() / 4;
  if (group == 0) {
    leave_registers<Shape::kThirdRegisters>();
    OnePassThird<T, Shape>(call, pass, memory).run();
  } else {
    take_registers<Shape::kOwnerRegisters>();
    one_pass_keys<T, Shape>(call, pass, memory, group - 1);
  }
#endif
}

// Blocks that walk heads: their number decides nothing but the time and the scratch.
inline int one_pass_blocks(const FlashCall& call) {
  const int heads = call.batch * call.heads;
  return heads < multiprocessors() ? heads : multiprocessors();
}

template <class T, class Shape>
void launch_one_pass(StreamRef stream, const FlashCall& call) {
  OnePass pass;
  pass.heads = call.batch * call.heads;
  pass.key_tiles = (call.keys + kPassKeys - 1) / kPassKeys;
  pass.query_tiles = (call.queries + kPassQueries - 1) / kPassQueries;
  pass.partial = call.partial;
  launch_shared(stream, "flash_backward", flash_one_pass_kernel<T, Shape>,
                static_cast<unsigned>(one_pass_blocks(call)), kPassThreads, Shape::kBytes, call,
                pass);
}

}  // namespace fovea::cuda
