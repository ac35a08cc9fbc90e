// Exact attention that stores its probabilities: one block a row, in loops anyone can believe. An
// oracle: speed does not matter here.

#include "kernels/attention_reference.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 128;

struct Call {
  View q, k, v, o, lse, p, dout, dlse, dq, dk, dv, dbias;
  AttentionScores how;
  // [B,H,N,M]: d scores, what dbias is made of; and times the cap's slope, what dq and dk are made
  // of. One memory where there is no cap.
  float *dscores = nullptr, *ds = nullptr;
};

__device__ __forceinline__ std::int64_t at4(const View& x, std::int64_t b, std::int64_t h,
                                            std::int64_t n, std::int64_t c) {
  return b * x.stride[0] + h * x.stride[1] + n * x.stride[2] + c * x.stride[3];
}
template <class T>
__device__ __forceinline__ float read(const View& x, std::int64_t b, std::int64_t h, std::int64_t n,
                                      std::int64_t c) {
  return to_float(static_cast<const T*>(x.data)[at4(x, b, h, n, c)]);
}
__device__ __forceinline__ bool is_valid(const View& mask, std::int64_t b, std::int64_t n) {
  return mask.data == nullptr ||
         static_cast<const std::uint8_t*>(mask.data)[b * mask.stride[0] + n * mask.stride[1]] != 0;
}
__device__ __forceinline__ std::int32_t segment(const View& x, std::int64_t b, std::int64_t n) {
  return static_cast<const std::int32_t*>(x.data)[b * x.stride[0] + n * x.stride[1]];
}

// One (b, h, i): what a block works on.
struct Row {
  std::int64_t index, b, h, i, kv;
  __device__ explicit Row(const Call& c)
      : index(blockIdx.x),
        b(index / c.q.dim[2] / c.q.dim[1]),
        h(index / c.q.dim[2] % c.q.dim[1]),
        i(index % c.q.dim[2]),
        kv(h / (c.q.dim[1] / c.k.dim[1])) {}
};

__device__ bool visible(const Call& c, const Row& row, std::int64_t j) {
  const AttentionScores& how = c.how;
  if (!is_valid(how.query_valid, row.b, row.i) || !is_valid(how.key_valid, row.b, j)) return false;
  if (how.causal && j > row.i + c.k.dim[2] - c.q.dim[2]) return false;
  return how.query_segments.data == nullptr ||
         segment(how.query_segments, row.b, row.i) == segment(how.key_segments, row.b, j);
}

template <class T>
__device__ float scaled(const Call& c, const Row& row, std::int64_t j) {
  float sum = 0;
  for (std::int64_t d = 0; d < c.q.dim[3]; ++d)
    sum = fmaf(read<T>(c.q, row.b, row.h, row.i, d), read<T>(c.k, row.b, row.kv, j, d), sum);
  return sum * static_cast<float>(c.how.scale);
}

// d score / d scaled.
template <class T>
__device__ float cap_slope(const Call& c, const Row& row, std::int64_t j) {
  if (c.how.softcap <= 0) return 1;
  const float t = tanhf(scaled<T>(c, row, j) / static_cast<float>(c.how.softcap));
  return 1 - t * t;
}

template <class T>
__device__ float score(const Call& c, const Row& row, std::int64_t j) {
  float sum = scaled<T>(c, row, j);
  if (c.how.softcap > 0) {
    const float cap = static_cast<float>(c.how.softcap);
    sum = cap * tanhf(sum / cap);
  }
  const View& bias = c.how.bias;
  if (bias.data != nullptr)
    sum += read<T>(bias, bias.dim[0] == 1 ? 0 : row.b, bias.dim[1] == 1 ? 0 : row.h, row.i, j);
  if (c.how.alibi_slopes.data != nullptr) {
    const std::int64_t distance = row.i + c.k.dim[2] - c.q.dim[2] - j;
    sum -= static_cast<const float*>(c.how.alibi_slopes.data)[row.h] *
           static_cast<float>(distance < 0 ? -distance : distance);
  }
  return sum;
}

// What dropout multiplies the probability of a pair by.
__device__ float kept(const Call& c, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) {
  if (c.how.dropout <= 0) return 1;
  const Key& key = c.how.dropout_key;
  const std::int64_t sample = (key.at != nullptr ? key.at->first_sample : 0) + b;
  const std::int64_t element = ((sample * c.q.dim[1] + h) * c.q.dim[2] + i) * c.k.dim[2] + j;
  const std::uint32_t bits = random_bits(key, static_cast<std::uint64_t>(element));
  return uniform_float(bits) >= static_cast<float>(c.how.dropout)
             ? static_cast<float>(1 / (1 - c.how.dropout))
             : 0.f;
}

template <class T>
__global__ void reference_forward_kernel(const __grid_constant__ Call c) {
  __shared__ float shared[kThreads / kWarp];
  const Row row(c);
  const float none = __int_as_float(0xff800000);
  const std::int64_t keys = c.k.dim[2];
  float* p = static_cast<float*>(c.p.data) + row.index * keys;
  float top = none;
  for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) {
    p[j] = visible(c, row, j) ? score<T>(c, row, j) : none;
    top = fmaxf(top, p[j]);
  }
  top = block_max<kThreads>(top, shared);
  float mass = 0;
  for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) {
    p[j] = p[j] == none ? 0 : expf(p[j] - top);
    mass += p[j];
  }
  mass = block_sum<kThreads>(mass, shared);
  if (threadIdx.x == 0)
    static_cast<float*>(c.lse.data)[row.index] = mass == 0 ? none : top + logf(mass);
  for (std::int64_t j = threadIdx.x; j < keys && mass != 0; j += kThreads)
    p[j] /= mass;
  __syncthreads();
  for (std::int64_t d = threadIdx.x; d < c.v.dim[3]; d += kThreads) {
    float sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (p[j] != 0)
        sum = fmaf(p[j] * kept(c, row.b, row.h, row.i, j), read<T>(c.v, row.b, row.kv, j, d), sum);
    }
    static_cast<T*>(c.o.data)[at4(c.o, row.b, row.h, row.i, d)] = from_float<T>(sum);
  }
}

// ds = P (dP - delta) c' with delta = sum_j P dP - dlse and c' the cap's slope; dq = scale ds K.
template <class T>
__global__ void reference_rows_kernel(const __grid_constant__ Call c) {
  __shared__ float shared[kThreads / kWarp];
  const Row row(c);
  const std::int64_t keys = c.k.dim[2];
  const float* p = static_cast<const float*>(c.p.data) + row.index * keys;
  float* ds = c.ds + row.index * keys;
  float delta = 0;
  for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) {
    float dp = 0;
    for (std::int64_t d = 0; c.dout.data != nullptr && p[j] != 0 && d < c.v.dim[3]; ++d)
      dp = fmaf(read<T>(c.dout, row.b, row.h, row.i, d), read<T>(c.v, row.b, row.kv, j, d), dp);
    ds[j] = p[j] != 0 ? dp * kept(c, row.b, row.h, row.i, j) : 0;
    if (p[j] != 0) delta = fmaf(p[j], ds[j], delta);
  }
  delta = block_sum<kThreads>(delta, shared);
  if (c.dlse.data != nullptr) delta -= static_cast<const float*>(c.dlse.data)[row.index];
  for (std::int64_t j = threadIdx.x; j < keys; j += kThreads) {
    const float dscore = p[j] != 0 ? p[j] * (ds[j] - delta) : 0;
    c.dscores[row.index * keys + j] = dscore;
    ds[j] = p[j] != 0 ? dscore * cap_slope<T>(c, row, j) : 0;
  }
  __syncthreads();
  for (std::int64_t d = threadIdx.x; c.dq.data != nullptr && d < c.q.dim[3]; d += kThreads) {
    float sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (ds[j] != 0) sum = fmaf(ds[j], read<T>(c.k, row.b, row.kv, j, d), sum);
    }
    static_cast<T*>(c.dq.data)[at4(c.dq, row.b, row.h, row.i, d)] =
        from_float<T>(sum * static_cast<float>(c.how.scale));
  }
}

// One block a (b, kv, j): dk = scale ds^T Q, dv = (P kept)^T dO, the group's heads in order.
template <class T>
__global__ void reference_keys_kernel(const __grid_constant__ Call c) {
  const std::int64_t keys = c.k.dim[2], queries = c.q.dim[2], kv_heads = c.k.dim[1];
  const std::int64_t group = c.q.dim[1] / kv_heads, at = blockIdx.x;
  const std::int64_t j = at % keys, kv = at / keys % kv_heads, b = at / keys / kv_heads;
  const std::int64_t widest = c.q.dim[3] > c.v.dim[3] ? c.q.dim[3] : c.v.dim[3];
  for (std::int64_t d = threadIdx.x; d < widest; d += kThreads) {
    float dk = 0, dv = 0;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t pair = ((b * c.q.dim[1] + h) * queries + i) * keys + j;
        const float p = static_cast<const float*>(c.p.data)[pair];
        if (p == 0) continue;
        if (d < c.q.dim[3]) dk = fmaf(c.ds[pair], read<T>(c.q, b, h, i, d), dk);
        if (d < c.v.dim[3] && c.dout.data != nullptr)
          dv = fmaf(p * kept(c, b, h, i, j), read<T>(c.dout, b, h, i, d), dv);
      }
    }
    if (c.dk.data != nullptr && d < c.q.dim[3])
      static_cast<T*>(c.dk.data)[at4(c.dk, b, kv, j, d)] =
          from_float<T>(dk * static_cast<float>(c.how.scale));
    if (c.dv.data != nullptr && d < c.v.dim[3])
      static_cast<T*>(c.dv.data)[at4(c.dv, b, kv, j, d)] = from_float<T>(dv);
  }
}

// One thread an element of dbias: samples outside, heads inside, over what the bias broadcasts.
__global__ void reference_bias_kernel(const __grid_constant__ Call c) {
  const std::int64_t pairs = c.q.dim[2] * c.k.dim[2];
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= c.dbias.dim[0] * c.dbias.dim[1] * pairs) return;
  const std::int64_t plane = at / pairs, heads = c.q.dim[1];
  const std::int64_t b0 = plane / c.dbias.dim[1], h0 = plane % c.dbias.dim[1];
  const std::int64_t b_end = c.dbias.dim[0] == 1 ? c.q.dim[0] : b0 + 1;
  const std::int64_t h_end = c.dbias.dim[1] == 1 ? heads : h0 + 1;
  float sum = 0;
  for (std::int64_t b = b0; b < b_end; ++b) {
    for (std::int64_t h = h0; h < h_end; ++h)
      sum += c.dscores[(b * heads + h) * pairs + at % pairs];
  }
  static_cast<float*>(c.dbias.data)[at] = sum;
}

}  // namespace

void attention_reference_forward(StreamRef stream, const View& o, const View& lse, const View& p,
                                 const View& q, const View& k, const View& v,
                                 const AttentionScores& scores) {
  constexpr const char* kName = "attention_reference_forward";
  const std::int64_t rows = q.dim[0] * q.dim[1] * q.dim[2];
  if (rows == 0) return;
  for_float(q.dtype, kName, [&](auto zero) {
    using T = decltype(zero);
    Call call;
    call.q = q, call.k = k, call.v = v, call.o = o, call.lse = lse, call.p = p, call.how = scores;
    reference_forward_kernel<T>
        <<<static_cast<unsigned>(rows), kThreads, 0, stream_of(stream)>>>(call);
    check_launch(kName);
  });
}

void attention_reference_backward(StreamRef stream, const AttentionGradients& gradients,
                                  const View& dout, const View& dlse, const View& p, const View& q,
                                  const View& k, const View& v, const AttentionScores& scores) {
  constexpr const char* kName = "attention_reference_backward";
  const std::int64_t rows = q.dim[0] * q.dim[1] * q.dim[2];
  const std::int64_t keys = k.dim[0] * k.dim[1] * k.dim[2];
  for_float(q.dtype, kName, [&](auto zero) {
    using T = decltype(zero);
    Call call;
    call.q = q, call.k = k, call.v = v, call.p = p, call.dout = dout, call.dlse = dlse;
    call.dq = gradients.dq, call.dk = gradients.dk, call.dv = gradients.dv;
    call.dbias = gradients.dbias, call.how = scores;
    const std::int64_t pairs = rows * k.dim[2];
    const std::int64_t planes = scores.softcap > 0 ? 2 : 1;
    if (pairs > 0)
      call.dscores = static_cast<float*>(
          scratch(stream, sizeof(float) * static_cast<std::size_t>(planes * pairs), kName));
    call.ds = call.dscores + (planes - 1) * pairs;
    if (rows > 0) {
      reference_rows_kernel<T>
          <<<static_cast<unsigned>(rows), kThreads, 0, stream_of(stream)>>>(call);
      check_launch(kName);
    }
    if (keys > 0) {
      reference_keys_kernel<T>
          <<<static_cast<unsigned>(keys), kThreads, 0, stream_of(stream)>>>(call);
      check_launch(kName);
    }
    if (gradients.dbias && gradients.dbias.numel() > 0) {
      reference_bias_kernel<<<blocks_for(gradients.dbias.numel(), kThreads), kThreads, 0,
                              stream_of(stream)>>>(call);
      check_launch(kName);
    }
  });
}

}  // namespace fovea::cuda
