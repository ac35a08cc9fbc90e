// What the steps of linear attention need to know of a chunk before they start: decay inside it,
// segments at its edges, how much of a state passes it and how large its sums are. A warp for every
// chunk of every state, a block for the long ones; reads decay, weight and marks once or twice,
// writes one number a token.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kMarkWarps = 4;
constexpr int kNoSegment = -0x7fffffff - 1;  // no valid token on that side

// The segment of the valid key nearest to `from`, itself included, towards smaller tokens (step -1)
// or larger ones. For the whole warp.
__device__ int nearest_segment(const LinearCall& call, int b, int from, int step) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int first = from; first >= 0 && first < call.keys; first += step * kWarp) {
    const int token = first + step * lane;
    const bool valid = token >= 0 && token < call.keys && call.key_tokens.is_valid(b, token);
    const unsigned found = __ballot_sync(~0u, valid);
    if (found != 0) {
      const int token_found = first + step * (__ffs(static_cast<int>(found)) - 1);
      return call.key_tokens.segment(b, token_found);
    }
  }
  return kNoSegment;
}

__device__ __forceinline__ float inclusive_sum(float value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const float before = __shfl_up_sync(~0u, value, offset);
    if (lane >= offset) value += before;
  }
  return value;
}

// A place in a launch of one warp for each (b, s, t).
struct ChunkPlace {
  int b, s, t, lane;
  bool exists;
  __device__ ChunkPlace(const LinearCall& call, int chunks) {
    const int at =
        static_cast<int>(blockIdx.x) * kMarkWarps + static_cast<int>(threadIdx.x) / kWarp;
    lane = static_cast<int>(threadIdx.x) % kWarp;
    t = at % chunks;
    s = at / chunks % call.states;
    b = at / chunks / call.states;
    exists = b < call.batch;
  }
};

// Segments at both edges of a chunk, as the left (0) or the right side (1) sees them.
__device__ EdgeIds find_edges(const LinearCall& call, int b, int first, int end, int side) {
  if (side == 0)
    return {nearest_segment(call, b, first - 1, -1), nearest_segment(call, b, end - 1, -1)};
  return {nearest_segment(call, b, end, 1), nearest_segment(call, b, first, 1)};
}

__global__ void __launch_bounds__(kMarkWarps* kWarp)
    chunk_marks_kernel(const __grid_constant__ LinearCall call) {
  const ChunkPlace at(call, call.key_chunks);
  if (!at.exists) return;
  const int first = at.t * call.chunk, end = min(first + call.chunk, call.keys);
  const std::int64_t row = call.key_of(at.b, at.s);
  const std::int64_t entry = call.chunk_of(at.b, at.s, at.t, call.key_chunks);
  float gamma = 0;
  if (call.decay != nullptr) {
    for (int base = first; base < end; base += kWarp) {
      const int token = base + at.lane;
      const bool real = token < end && call.key_tokens.is_valid(at.b, token);
      const float sum = gamma + inclusive_sum(real ? call.decay[row + token] : 0.0f);
      if (token < end) call.gamma[row + token] = sum;
      gamma = __shfl_sync(~0u, sum, kWarp - 1);
    }
    __syncwarp();
  }
  for (int which = 0; which < call.sides; ++which) {
    const ScanSide& side = call.side[which];
    EdgeIds edges;
    if (side.in != nullptr) {
      edges = find_edges(call, at.b, first, end, which);
      if (at.s == 0 && at.lane == 0) {
        const std::int64_t place = std::int64_t{at.b} * call.key_chunks + at.t;
        const_cast<int*>(side.in)[place] = edges.in;
        const_cast<int*>(side.out)[place] = edges.out;
      }
    }
    float mass = 0, count = 0;
    for (int base = first; base < end; base += kWarp) {
      const int token = base + at.lane;
      if (token >= end || !call.key_tokens.is_valid(at.b, token)) continue;
      if (side.in != nullptr && call.key_tokens.segment(at.b, token) != edges.out) continue;
      const float late = call.decay == nullptr ? 1.0f : exp2f(gamma - call.gamma[row + token]);
      mass += call.key_weight(row + token) * late;
      count += 1;
    }
    mass = warp_sum(mass);
    count = warp_sum(count);
    if (at.lane != 0) continue;
    const_cast<float*>(side.keep)[entry] = edges.in == edges.out ? exp2f(gamma) : 0.0f;
    const_cast<float*>(side.keys.mass)[entry] = mass;
    if (call.counts != nullptr) call.counts[entry] = count;
  }
}

// Whether a query's denominator is above the floor, which then divides nothing.
__device__ __forceinline__ bool divides(const LinearCall& call, float rho) {
  return call.normaliser != Normaliser::clamp || rho * call.floor < 1.0f;
}
// QueryRows::top from the largest rho that divides and the largest of all.
__device__ __forceinline__ float top_of(float top, float most) {
  if (!(top > 0)) top = most;
  return top > 0 ? exp2f(ceilf(log2f(top))) : 1.0f;
}

// top and mass of the queries, from rho.
__global__ void __launch_bounds__(kMarkWarps* kWarp)
    query_marks_kernel(const __grid_constant__ LinearCall call) {
  const ChunkPlace at(call, call.query_chunks);
  if (!at.exists) return;
  const int first = at.t * call.chunk, end = min(first + call.chunk, call.queries);
  const int group = call.group();
  const std::int64_t entry = call.chunk_of(at.b, at.s, at.t, call.query_chunks);
  float top = 0, most = 0, mass[kMostSides] = {};
  for (int g = 0; g < group; ++g) {
    const float* rho = call.rows.rho + call.row_of(at.b, at.s * group + g);
    for (int token = first + at.lane; token < end; token += kWarp) {
      most = fmaxf(most, rho[token]);
      if (divides(call, rho[token])) top = fmaxf(top, rho[token]);
      const float early =
          call.decay == nullptr ? 1.0f : exp2f(call.gamma[call.key_of(at.b, at.s) + token]);
      for (int which = 0; which < call.sides; ++which) {
        const EdgeIds edges = edges_of(call, call.side[which], at.b, call.query_chunks, at.t);
        if (call.query_tokens.segments == nullptr || call.side[which].in == nullptr ||
            call.query_tokens.segment(at.b, token) == edges.in)
          mass[which] += rho[token] * early;
      }
    }
  }
  top = warp_max(top);
  most = warp_max(most);
  for (int which = 0; which < call.sides; ++which) {
    const float sum = warp_sum(mass[which]);
    if (at.lane == 0) const_cast<float*>(call.side[which].queries.mass)[entry] = sum;
  }
  if (at.lane == 0) call.rows.top[entry] = top_of(top, most);
}

constexpr int kWholeThreads = 256;

// A block's chunk where chunks have one state: no decay and one segment. Their chunks are long.
struct WholePlace {
  int b, s, t;
  __device__ WholePlace(const LinearCall& call, int chunks)
      : b(static_cast<int>(blockIdx.x) / chunks / call.states),
        s(static_cast<int>(blockIdx.x) / chunks % call.states),
        t(static_cast<int>(blockIdx.x) % chunks) {}
};

__global__ void __launch_bounds__(kWholeThreads)
    whole_marks_kernel(const __grid_constant__ LinearCall call) {
  __shared__ float warps[kWholeThreads / kWarp];
  const WholePlace at(call, call.key_chunks);
  const int first = at.t * call.chunk, end = min(first + call.chunk, call.keys);
  const std::int64_t row = call.key_of(at.b, at.s);
  float mass = 0, count = 0;
  for (int token = first + static_cast<int>(threadIdx.x); token < end; token += kWholeThreads) {
    if (!call.key_tokens.is_valid(at.b, token)) continue;
    mass += call.key_weight(row + token);
    count += 1;
  }
  mass = block_sum<kWholeThreads>(mass, warps);
  count = block_sum<kWholeThreads>(count, warps);
  if (threadIdx.x != 0) return;
  const std::int64_t entry = call.chunk_of(at.b, at.s, at.t, call.key_chunks);
  const_cast<float*>(call.side[0].keep)[entry] = 1.0f;
  const_cast<float*>(call.side[0].keys.mass)[entry] = mass;
  if (call.counts != nullptr) call.counts[entry] = count;
}

__global__ void __launch_bounds__(kWholeThreads)
    whole_query_marks_kernel(const __grid_constant__ LinearCall call) {
  __shared__ float warps[kWholeThreads / kWarp];
  const WholePlace at(call, call.query_chunks);
  const int first = at.t * call.chunk, end = min(first + call.chunk, call.queries);
  const int group = call.group();
  float top = 0, most = 0, mass = 0;
  for (int g = 0; g < group; ++g) {
    const float* rho = call.rows.rho + call.row_of(at.b, at.s * group + g);
    for (int token = first + static_cast<int>(threadIdx.x); token < end; token += kWholeThreads) {
      most = fmaxf(most, rho[token]);
      if (divides(call, rho[token])) top = fmaxf(top, rho[token]);
      mass += rho[token];
    }
  }
  top = block_max<kWholeThreads>(top, warps);
  most = block_max<kWholeThreads>(most, warps);
  mass = block_sum<kWholeThreads>(mass, warps);
  if (threadIdx.x != 0) return;
  const std::int64_t entry = call.chunk_of(at.b, at.s, at.t, call.query_chunks);
  const_cast<float*>(call.side[0].queries.mass)[entry] = mass;
  call.rows.top[entry] = top_of(top, most);
}

void launch(StreamRef stream, const LinearCall& call, int chunks, void (*kernel)(const LinearCall),
            void (*whole)(const LinearCall), const char* name) {
  const std::int64_t count = std::int64_t{call.batch} * call.states * chunks;
  if (count == 0) return;
  if (call.pairs)
    kernel<<<blocks_for(count, kMarkWarps), kMarkWarps * kWarp, 0, stream_of(stream)>>>(call);
  else
    whole<<<static_cast<unsigned>(count), kWholeThreads, 0, stream_of(stream)>>>(call);
  check_launch(name);
}

}  // namespace

void linear_marks(StreamRef stream, const LinearCall& call) {
  launch(stream, call, call.key_chunks, chunk_marks_kernel, whole_marks_kernel,
         "linear_attention marks");
}

void linear_query_marks(StreamRef stream, const LinearCall& call) {
  launch(stream, call, call.query_chunks, query_marks_kernel, whole_query_marks_kernel,
         "linear_attention query marks");
}

}  // namespace fovea::cuda
