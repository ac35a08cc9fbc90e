#pragma once
// Scans along the tokens of a sequence, a block for it or for each of its pieces: running maxima
// that fall, running sums that start anew.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

constexpr int kRunThreads = 1024, kRunEach = 4;
constexpr float kInfinity = __builtin_huge_valf();

// x -> max(x - fall, floor).
struct FallingMax {
  float fall, floor;
  __device__ static __forceinline__ FallingMax identity() { return {0.0f, -kInfinity}; }
  __device__ __forceinline__ float of(float x) const { return fmaxf(x - fall, floor); }
  __device__ __forceinline__ FallingMax then(FallingMax next) const {
    return {fall + next.fall, fmaxf(floor - next.fall, next.floor)};
  }
  // Whatever was before.
  __device__ static __forceinline__ FallingMax anew(float value) { return {kInfinity, value}; }
};

// x -> keep x + more.
struct KeptSum {
  float keep, more;
  __device__ static __forceinline__ KeptSum identity() { return {1.0f, 0.0f}; }
  __device__ __forceinline__ float of(float x) const { return keep * x + more; }
  __device__ __forceinline__ KeptSum then(KeptSum next) const {
    return {keep * next.keep, next.keep * more + next.more};
  }
};

template <class F>
__device__ __forceinline__ F shuffled_up(F value, int offset);
template <>
__device__ __forceinline__ FallingMax shuffled_up(FallingMax value, int offset) {
  return {__shfl_up_sync(~0u, value.fall, offset), __shfl_up_sync(~0u, value.floor, offset)};
}
template <>
__device__ __forceinline__ KeptSum shuffled_up(KeptSum value, int offset) {
  return {__shfl_up_sync(~0u, value.keep, offset), __shfl_up_sync(~0u, value.more, offset)};
}

constexpr int kRunPiece = kRunThreads * kRunEach;  // tokens that a block takes at a time

// Applies step(token) to `x` for the tokens of the piece that begins `base` tokens from the left or
// from the right, in order, and calls visit(token, before, after). Returns all steps as one, to all
// threads of the block.
template <class F, bool kFromRight, class Step, class Visit>
__device__ F run_piece(int tokens, int base, float x, Step step, Visit visit) {
  constexpr int kWarps = kRunThreads / kWarp;
  __shared__ F warps[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  F steps[kRunEach], mine = F::identity();
  const int first = base + static_cast<int>(threadIdx.x) * kRunEach;
  const auto token_of = [&](int u) { return kFromRight ? tokens - 1 - first - u : first + u; };
#pragma unroll
  for (int u = 0; u < kRunEach; ++u) {
    steps[u] = first + u < tokens ? step(token_of(u)) : F::identity();
    mine = mine.then(steps[u]);
  }
  F upto = mine;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const F before = shuffled_up(upto, offset);
    if (lane >= offset) upto = before.then(upto);
  }
  if (lane == kWarp - 1) warps[warp] = upto;
  __syncthreads();
  F past = F::identity(), whole = F::identity();
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) past = past.then(warps[w]);
    whole = whole.then(warps[w]);
  }
  const F left = shuffled_up(upto, 1);
  float at = past.of(x);
  if (lane > 0) at = left.of(at);
#pragma unroll
  for (int u = 0; u < kRunEach; ++u) {
    if (first + u >= tokens) break;
    const float after = steps[u].of(at);
    visit(token_of(u), at, after);
    at = after;
  }
  __syncthreads();
  return whole;
}

// The same for every token. Returns the last value, to all threads of the block.
template <class F, bool kFromRight, class Step, class Visit>
__device__ float run_along(int tokens, float x, Step step, Visit visit) {
  for (int base = 0; base < tokens; base += kRunPiece)
    x = run_piece<F, kFromRight>(tokens, base, x, step, visit).of(x);
  return x;
}

// Whether a valid token begins a segment, seen from the left (step -1) or from the right (step 1).
__device__ inline bool begins_segment(const Tokens& tokens, int b, int token, int count, int step) {
  if (tokens.segments == nullptr) return false;
  for (int other = token + step; other >= 0 && other < count; other += step) {
    if (tokens.is_valid(b, other)) return tokens.segment(b, other) != tokens.segment(b, token);
  }
  return false;
}

// values[token] becomes the largest of its segment's valid tokens; for the whole block.
template <class Value>
__device__ void segment_maxima(const Tokens& tokens, int b, int count, Value value) {
  const auto step_of = [&](int token, int direction) {
    if (!tokens.is_valid(b, token)) return FallingMax::identity();
    return begins_segment(tokens, b, token, count, direction) ? FallingMax::anew(value(token))
                                                              : FallingMax{0.0f, value(token)};
  };
  run_along<FallingMax, false>(
      count, -kInfinity, [&](int token) { return step_of(token, -1); },
      [&](int token, float, float after) { value(token) = after; });
  __syncthreads();
  run_along<FallingMax, true>(
      count, -kInfinity, [&](int token) { return step_of(token, 1); },
      [&](int token, float, float after) { value(token) = after; });
  __syncthreads();
}

}  // namespace fovea::cuda
