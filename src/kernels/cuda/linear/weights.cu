// How keys are weighed: scales of key features, RFA's gate, and the gradients of weights.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/linear/run.cuh"

namespace fovea::cuda {

namespace {

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.69314718055994531f;

// How key_scale reads one state.
struct Scale {
  const float *exponent, *slopes;
  Tokens tokens;
  int states, per_key, count;
  int pieces;  // of a state's tokens, a block each

  __device__ __forceinline__ const float* row(int b, int s) const {
    return exponent + (std::int64_t{b} * (states / per_key) + s / per_key) * count;
  }
  __device__ __forceinline__ float slope(int s) const {
    return slopes == nullptr ? 0.0f : slopes[s];
  }
  // What a token does to the maximum so far.
  __device__ __forceinline__ FallingMax step(int b, int token, float value, float fall) const {
    if (!tokens.is_valid(b, token)) return FallingMax::identity();
    return begins_segment(tokens, b, token, count, -1) ? FallingMax::anew(value)
                                                       : FallingMax{fall, value};
  }
};

struct ScalePlace {
  int piece, head, b, s;  // head: b S + s
  __device__ __forceinline__ explicit ScalePlace(const Scale& scale)
      : piece(static_cast<int>(blockIdx.x) % scale.pieces),
        head(static_cast<int>(blockIdx.x) / scale.pieces),
        b(head / scale.states),
        s(head % scale.states) {}
};

// What every piece of a state's tokens does to the maximum, behind what it begins with: [B S]
// [pieces + 1]. A piece a block; reads exponents once.
__global__ void __launch_bounds__(kRunThreads)
    scale_pieces_kernel(FallingMax* pieces, const float* top, const __grid_constant__ Scale scale) {
  const ScalePlace place(scale);
  const int piece = place.piece, head = place.head, b = place.b, s = place.s;
  const float* from = scale.row(b, s);
  const float fall = scale.slope(s);
  const FallingMax whole = run_piece<FallingMax, false>(
      scale.count, piece * kRunPiece, 0.0f,
      [&](int token) { return scale.step(b, token, from[token], fall); }, [](int, float, float) {});
  if (threadIdx.x != 0) return;
  FallingMax* to = pieces + std::int64_t{head} * (scale.pieces + 1);
  to[piece + 1] = whole;
  if (piece == 0) to[0] = FallingMax::anew(top == nullptr ? -kInfinity : top[head]);
}

// Causal weights: a piece a block, which begins with what the pieces before it do. Reads exponents
// once, writes decay and weight once.
__global__ void __launch_bounds__(kRunThreads)
    causal_scale_kernel(float* decay, float* weight, float* top, float* tops,
                        const FallingMax* pieces, const __grid_constant__ Scale scale) {
  const ScalePlace place(scale);
  const int piece = place.piece, head = place.head, b = place.b, s = place.s;
  const float* from = scale.row(b, s);
  const float fall = scale.slope(s);
  const std::int64_t row = std::int64_t{head} * scale.count;
  float x = top == nullptr ? -kInfinity : top[head];
  if (pieces != nullptr) {
    const FallingMax* before = pieces + std::int64_t{head} * (scale.pieces + 1);
    for (int i = 0; i <= piece; ++i)
      x = before[i].of(x);
  }
  const FallingMax whole = run_piece<FallingMax, false>(
      scale.count, piece * kRunPiece, x,
      [&](int token) { return scale.step(b, token, from[token], fall); },
      [&](int token, float before, float after) {
        const bool valid = scale.tokens.is_valid(b, token);
        const bool starts = before == -kInfinity ||
                            (valid && begins_segment(scale.tokens, b, token, scale.count, -1));
        weight[row + token] = valid ? from[token] - after : 0.0f;
        if (tops != nullptr) tops[row + token] = after;
        decay[row + token] = valid && !starts ? before - fall - after : 0.0f;
      });
  if (top != nullptr && threadIdx.x == 0 && piece + 1 == scale.pieces) top[head] = whole.of(x);
}

// Weights of all keys of a state that is one segment: a piece a block, each of which reads all
// exponents, once from L2, and writes its weights once.
__global__ void __launch_bounds__(kRunThreads)
    whole_scale_kernel(float* weight, float* tops, const __grid_constant__ Scale scale) {
  __shared__ float warps[kRunThreads / kWarp];
  const ScalePlace place(scale);
  const int piece = place.piece, head = place.head, b = place.b, s = place.s;
  const float* from = scale.row(b, s);
  const std::int64_t row = std::int64_t{head} * scale.count;
  float most = -kInfinity;
#pragma unroll 8
  for (int token = static_cast<int>(threadIdx.x); token < scale.count; token += kRunThreads)
    most = fmaxf(most, scale.tokens.is_valid(b, token) ? from[token] : -kInfinity);
  most = block_max<kRunThreads>(most, warps);
  const int first = piece * kRunPiece, end = min(first + kRunPiece, scale.count);
  for (int token = first + static_cast<int>(threadIdx.x); token < end; token += kRunThreads) {
    if (tops != nullptr) tops[row + token] = most;
    weight[row + token] = scale.tokens.is_valid(b, token) ? from[token] - most : 0.0f;
  }
}

// Weights of all keys of a state by segment, one state a block. Reads exponents three times, writes
// weight twice.
__global__ void __launch_bounds__(kRunThreads)
    segment_scale_kernel(float* weight, float* tops, const __grid_constant__ Scale scale) {
  const int head = static_cast<int>(blockIdx.x), b = head / scale.states, s = head % scale.states;
  const float* from = scale.row(b, s);
  float* to = weight + std::int64_t{head} * scale.count;
  for (int token = static_cast<int>(threadIdx.x); token < scale.count; token += kRunThreads)
    to[token] = from[token];
  __syncthreads();
  segment_maxima(scale.tokens, b, scale.count, [&](int token) -> float& { return to[token]; });
  for (int token = static_cast<int>(threadIdx.x); token < scale.count; token += kRunThreads) {
    if (tops != nullptr) tops[std::int64_t{head} * scale.count + token] = to[token];
    to[token] = scale.tokens.is_valid(b, token) ? from[token] - to[token] : 0.0f;
  }
}

constexpr int kGateThreads = 256;

// log2 sigmoid(z), without overflow.
__device__ __forceinline__ float log2_sigmoid(float z) {
  return (fminf(z, 0.0f) - log1pf(expf(-fabsf(z)))) * kLog2e;
}

// One gate a thread; reads z once, writes both once.
template <class T>
__global__ void __launch_bounds__(kGateThreads)
    gate_forward_kernel(float* decay, float* weight, const T* z, const Tokens tokens, int count,
                        int states, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (at >= n) return;
  const int s = static_cast<int>(at % states), token = static_cast<int>(at / states % count);
  const int b = static_cast<int>(at / states / count);
  const bool real = tokens.is_valid(b, token);
  const float x = real ? to_float(z[at]) : 0.0f;
  const std::int64_t to = (std::int64_t{b} * states + s) * count + token;
  decay[to] = real ? log2_sigmoid(x) : 0.0f;
  weight[to] = real ? log2_sigmoid(-x) : 0.0f;
}

// Reads z and both gradients once, writes dz once.
template <class T>
__global__ void __launch_bounds__(kGateThreads)
    gate_backward_kernel(T* dz, const float* ddecay, const float* dweight, const T* z,
                         const Tokens tokens, int count, int states, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (at >= n) return;
  const int s = static_cast<int>(at % states), token = static_cast<int>(at / states % count);
  const int b = static_cast<int>(at / states / count);
  float sum = 0;
  if (tokens.is_valid(b, token)) {
    const std::int64_t from = (std::int64_t{b} * states + s) * count + token;
    const float gate = 1.0f / (1.0f + expf(-to_float(z[at])));
    if (ddecay != nullptr) sum += ddecay[from] * (1.0f - gate);
    if (dweight != nullptr) sum -= dweight[from] * gate;
  }
  dz[at] = from_float<T>(sum * kLog2e);
}

// One row a thread.
__global__ void __launch_bounds__(kGateThreads)
    log_mass_kernel(float* lse, const float* den, const float* exponent, const float* tops,
                    float add, std::int64_t rows, int group, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (at >= n) return;
  const float mass = den[at], top = tops[at / rows / group * rows + at % rows];
  lse[at] = mass > 0 ? logf(mass) + ((exponent[at] + top) * kLn2 + add) : -kInfinity;
}

constexpr int kColumnWarps = 8;

// columns[b,s,j] = <b_j, db_j> of a state, a warp each.
template <class T>
__global__ void __launch_bounds__(kColumnWarps* kWarp)
    column_sums_kernel(const __grid_constant__ LinearCall call, float* columns) {
  const std::int64_t row =
      std::int64_t{blockIdx.x} * kColumnWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= std::int64_t{call.batch} * call.states * call.keys) return;
  const int token = static_cast<int>(row % call.keys);
  const int s = static_cast<int>(row / call.keys % call.states),
            b = static_cast<int>(row / call.keys / call.states);
  float sum = 0;
  if (call.key_tokens.is_valid(b, token)) {
    const T* x = call.b.at<const T>(b, call.key_head(s)) + token * call.b.row;
    const float* dx = call.db.at<const float>(b, s) + token * call.db.row;
    for (int c = lane; c < call.features; c += kWarp)
      sum = fmaf(to_float(x[c]), dx[c], sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) columns[row] = sum;
}

// One number a thread, its states in order.
__global__ void __launch_bounds__(kGateThreads)
    add_states_kernel(const __grid_constant__ LinearCall call, float* db, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (at >= n) return;
  const std::int64_t head = std::int64_t{call.keys} * call.features;
  const int per_key = call.states / call.key_heads;
  const float* from =
      static_cast<const float*>(call.db.data) + at / head * per_key * head + at % head;
  float sum = 0;
  for (int s = 0; s < per_key; ++s)
    sum += from[s * head];
  db[at] = sum;
}

// From column sums (in place where dweight is wanted) to gradients, one state a block.
__global__ void __launch_bounds__(kRunThreads)
    weight_gradients_kernel(const __grid_constant__ LinearCall call, const float* columns) {
  const int b = static_cast<int>(blockIdx.x) / call.states,
            s = static_cast<int>(blockIdx.x) % call.states;
  const std::int64_t row = call.key_of(b, s);
  const int group = call.group();
  if (call.ddecay != nullptr) {
    run_along<KeptSum, true>(
        call.keys, 0.0f,
        [&](int token) {
          float more = -columns[row + token];
          for (int g = 0; g < group; ++g)
            more += call.rows.rest[call.row_of(b, s * group + g) + token];
          const bool valid = call.key_tokens.is_valid(b, token);
          const bool starts = valid && begins_segment(call.key_tokens, b, token, call.keys, 1);
          return KeptSum{starts ? 0.0f : 1.0f, more};
        },
        [&](int token, float, float after) {
          call.ddecay[row + token] = call.key_tokens.is_valid(b, token) ? after * kLn2 : 0.0f;
        });
    __syncthreads();
  }
  if (call.dweight == nullptr) return;
  for (int token = static_cast<int>(threadIdx.x); token < call.keys; token += kRunThreads)
    call.dweight[row + token] = columns[row + token] * kLn2;
}

}  // namespace

void linear_weight_gradients(StreamRef stream, DType dtype, const LinearCall& call,
                             float* columns) {
  for_float(dtype, "linear_attention", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t rows = std::int64_t{call.batch} * call.states * call.keys;
    column_sums_kernel<T>
        <<<blocks_for(rows, kColumnWarps), kColumnWarps * kWarp, 0, stream_of(stream)>>>(call,
                                                                                         columns);
    check_launch("linear_attention column sums");
  });
  weight_gradients_kernel<<<static_cast<unsigned>(call.batch * call.states), kRunThreads, 0,
                            stream_of(stream)>>>(call, columns);
  check_launch("linear_attention weight gradients");
}

void linear_add_states(StreamRef stream, const LinearCall& call, float* db) {
  const std::int64_t n = std::int64_t{call.batch} * call.key_heads * call.keys * call.features;
  add_states_kernel<<<blocks_for(n, kGateThreads), kGateThreads, 0, stream_of(stream)>>>(call, db,
                                                                                         n);
  check_launch("linear_attention states");
}

void key_scale(StreamRef stream, const View& decay, const View& weight, const View& top,
               const View& tops, const View& exponent, const View& slopes, const LinearSums& sums) {
  constexpr const char* kLauncher = "key_scale";
  if (weight.numel() == 0) return;
  const int states = static_cast<int>(weight.dim[1]);
  const Scale scale{exponent.ptr<const float>(),
                    slopes.ptr<const float>(),
                    Tokens(sums.key_valid, sums.key_segments),
                    states,
                    states / static_cast<int>(exponent.dim[1]),
                    static_cast<int>(weight.dim[2]),
                    static_cast<int>(blocks_for(weight.dim[2], kRunPiece))};
  const auto heads = static_cast<unsigned>(weight.dim[0] * states),
             grid = heads * static_cast<unsigned>(scale.pieces);
  const cudaStream_t queue = stream_of(stream);
  float* const to = weight.ptr<float>();
  if (decay) {
    FallingMax* pieces = nullptr;
    if (scale.pieces > 1) {
      pieces = static_cast<FallingMax*>(
          scratch(stream, std::size_t{grid + heads} * sizeof(FallingMax), kLauncher));
      scale_pieces_kernel<<<grid, kRunThreads, 0, queue>>>(pieces, top.ptr<float>(), scale);
      check_launch(kLauncher);
    }
    causal_scale_kernel<<<grid, kRunThreads, 0, queue>>>(decay.ptr<float>(), to, top.ptr<float>(),
                                                         tops.ptr<float>(), pieces, scale);
  } else if (scale.tokens.segments == nullptr) {
    whole_scale_kernel<<<grid, kRunThreads, 0, queue>>>(to, tops.ptr<float>(), scale);
  } else {
    segment_scale_kernel<<<heads, kRunThreads, 0, queue>>>(to, tops.ptr<float>(), scale);
  }
  check_launch(kLauncher);
}

void log_mass(StreamRef stream, const View& lse, const View& den, const View& exponent,
              const View& tops, double add) {
  const std::int64_t n = lse.numel();
  if (n == 0) return;
  log_mass_kernel<<<blocks_for(n, kGateThreads), kGateThreads, 0, stream_of(stream)>>>(
      lse.ptr<float>(), den.ptr<const float>(), exponent.ptr<const float>(),
      tops.ptr<const float>(), static_cast<float>(add), lse.dim[2],
      static_cast<int>(lse.dim[1] / tops.dim[1]), n);
  check_launch("log_mass");
}

void gate_forward(StreamRef stream, const View& decay, const View& weight, const View& z,
                  const View& key_valid) {
  const std::int64_t n = z.numel();
  if (n == 0) return;
  for_float(z.dtype, "gate_forward", [&](auto zero) {
    using T = decltype(zero);
    gate_forward_kernel<T><<<blocks_for(n, kGateThreads), kGateThreads, 0, stream_of(stream)>>>(
        decay.ptr<float>(), weight.ptr<float>(), z.ptr<const T>(), Tokens(key_valid, View{}),
        static_cast<int>(z.dim[1]), static_cast<int>(z.dim[2]), n);
    check_launch("gate_forward");
  });
}

void gate_backward(StreamRef stream, const View& dz, const View& ddecay, const View& dweight,
                   const View& z, const View& key_valid) {
  const std::int64_t n = z.numel();
  if (n == 0) return;
  for_float(z.dtype, "gate_backward", [&](auto zero) {
    using T = decltype(zero);
    gate_backward_kernel<T><<<blocks_for(n, kGateThreads), kGateThreads, 0, stream_of(stream)>>>(
        dz.ptr<T>(), ddecay.ptr<const float>(), dweight.ptr<const float>(), z.ptr<const T>(),
        Tokens(key_valid, View{}), static_cast<int>(z.dim[1]), static_cast<int>(z.dim[2]), n);
    check_launch("gate_backward");
  });
}

}  // namespace fovea::cuda
