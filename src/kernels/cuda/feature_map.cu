// Feature maps: the elementwise ones, and the way to the others.

#include "kernels/cuda/features/project.cuh"
#include "kernels/cuda/tile/partials.cuh"
#include "kernels/feature_map.h"

namespace fovea::cuda {

namespace {

constexpr int kMapThreads = 256;

struct Elementwise {
  FeatureCall call;
  float reference = 1;
  const std::int32_t* positions = nullptr;
  std::int64_t position_batch = 0, position_token = 0;

  // sin and cos of the angle of a row.
  __device__ __forceinline__ float2 turn(int b, int token) const {
    const int place =
        positions == nullptr ? token : positions[b * position_batch + token * position_token];
    float2 out;
    // sincospi counts in half turns: t = (pi / 2) (place + 1) / reference.
    sincospif(0.5f * static_cast<float>(place + 1) / reference, &out.x, &out.y);
    return out;
  }
};

// A place in x: one number a thread.
struct Number {
  int b, h, token, column;
  bool valid;
  std::int64_t row;  // of y's head
  __device__ Number(const FeatureCall& call, std::int64_t at) {
    column = static_cast<int>(at % call.width);
    row = at / call.width;
    token = static_cast<int>(row % call.rows);
    h = static_cast<int>(row / call.rows % call.heads);
    b = static_cast<int>(row / call.rows / call.heads);
    valid = call.tokens.is_valid(b, token);
  }
};

// Reads x once, writes y once.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    elementwise_forward_kernel(const __grid_constant__ Elementwise map, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (at >= n) return;
  const FeatureCall& call = map.call;
  const Number i(call, at);
  const T* x = call.x.at<const T>(i.b, i.h / call.group());
  const float from = i.valid ? to_float(x[i.token * call.x.row + i.column]) : 0.0f;
  T* y = static_cast<T*>(call.y.data) + i.row * call.features + i.column;
  if (call.kind == FeatureKind::cosine) {
    const float2 turn = map.turn(i.b, i.token);
    const float kept = fmaxf(from, 0.0f);
    y[0] = from_float<T>(kept * turn.x);
    y[call.width] = from_float<T>(kept * turn.y);
    return;
  }
  const float z = from * call.scale;
  const float value = call.kind == FeatureKind::elu ? fmaxf(z, 0.0f) + expf(fminf(z, 0.0f))
                                                    : fmaxf(z, 0.0f) + call.offset;
  y[0] = from_float<T>(i.valid ? value : 0.0f);
}

// Reads x and dy once, writes dx once.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    elementwise_backward_kernel(const __grid_constant__ Elementwise map, std::int64_t n) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (at >= n) return;
  const FeatureCall& call = map.call;
  const Number i(call, at);
  T* dx = call.dx.at<T>(i.b, i.h) + i.token * call.dx.row + i.column;
  if (!i.valid) {
    *dx = from_float<T>(0.0f);
    return;
  }
  const float x = to_float(call.x.at<const T>(i.b, i.h)[i.token * call.x.row + i.column]);
  const float dy = call.gradient<T>(i.row, i.column, true, false).x;
  float out;
  if (call.kind == FeatureKind::cosine) {
    const float2 turn = map.turn(i.b, i.token);
    const float other = call.gradient<T>(i.row, call.width + i.column, true, false).x;
    out = x > 0 ? dy * turn.x + other * turn.y : 0.0f;
  } else if (call.kind == FeatureKind::elu) {
    out = dy * call.scale * expf(fminf(x * call.scale, 0.0f));
  } else {
    out = x > 0 ? dy * call.scale : 0.0f;
  }
  *dx = from_float<T>(out);
}

FeatureCall describe(const View& y, const View& x, const View& shift, const FeatureMap& map,
                     const char* launcher) {
  FeatureCall call;
  call.x = TileRows(x), call.y = TileRows(y);
  call.tokens = Tokens(map.valid, map.segments);
  call.batch = static_cast<int>(x.dim[0]);
  call.heads = static_cast<int>(y.dim[1]);
  call.x_heads = static_cast<int>(x.dim[1]);
  call.rows = static_cast<int>(x.dim[2]);
  call.width = static_cast<int>(x.dim[3]);
  call.features = static_cast<int>(y.dim[3]);
  call.shift = shift.ptr<float>();
  call.found = map.shared ? map.shared.ptr<float>() : call.shift;
  call.knows_shared = map.again && map.shared;
  call.kind = map.kind;
  call.stabiliser = map.stabiliser;
  call.scale = static_cast<float>(map.scale);
  call.eps = static_cast<float>(map.eps);
  call.offset = static_cast<float>(map.offset);
  call.temperature = static_cast<float>(map.temperature);
  if (map.w) {
    call.w = map.w.ptr<const float>();
    call.groups = map.w.rank == 3 ? static_cast<int>(map.w.dim[0]) : 1;
    call.directions = static_cast<int>(map.w.dim[map.w.rank - 2]);
    if (call.width_tiles() > kMostWidthTiles) refuse(launcher, "rows wider than 256");
  }
  call.sigma = map.sigma.data;
  call.sigma_row = map.sigma.stride[0];
  call.entries = map.entries.ptr<const std::int32_t>();
  return call;
}

Elementwise elementwise(const FeatureCall& call, const FeatureMap& map) {
  Elementwise out;
  out.call = call;
  out.reference = static_cast<float>(map.reference);
  out.positions = map.positions.ptr<const std::int32_t>();
  out.position_batch = map.positions.stride[0];
  out.position_token = map.positions.stride[1];
  return out;
}

bool is_random(FeatureKind kind) {
  return kind == FeatureKind::softmax || kind == FeatureKind::softmax_pair ||
         kind == FeatureKind::relu_random;
}

}  // namespace

void features_forward(StreamRef stream, const View& y, const View& exponent, const View& shift,
                      const View& x, const FeatureMap& map) {
  if (y.numel() == 0) return;
  FeatureCall call = describe(y, x, shift, map, "features_forward");
  call.exponent = exponent.ptr<float>();
  if (is_random(map.kind)) return random_features(stream, x.dtype, call);
  if (map.kind == FeatureKind::fourier) return fourier_features(stream, x.dtype, call);
  const std::int64_t n = y.dim[0] * y.dim[1] * y.dim[2] * x.dim[3];
  for_float(x.dtype, "features_forward", [&](auto zero) {
    using T = decltype(zero);
    elementwise_forward_kernel<T>
        <<<blocks_for(n, kMapThreads), kMapThreads, 0, stream_of(stream)>>>(elementwise(call, map),
                                                                            n);
    check_launch("features_forward");
  });
}

void features_backward(StreamRef stream, const View& dx, const View& dsigma, const View& dy,
                       const View& x, const View& shift, const FeatureMap& map) {
  if (dy.numel() == 0 || (!dx && !dsigma)) return;
  FeatureCall call = describe(dy, x, shift, map, "features_backward");
  call.dy = dy.data;
  call.dy_is_float = dy.dtype == DType::f32;
  call.dx = TileRows(dx);
  if (is_random(map.kind)) return random_feature_gradients(stream, x.dtype, call);
  if (map.kind == FeatureKind::fourier) {
    const std::int64_t parts = fourier_partials(x.dtype, call),
                       columns = std::int64_t{call.heads} * call.width;
    if (dsigma) {
      call.partial = static_cast<float*>(scratch(
          stream, static_cast<std::size_t>(parts * columns) * sizeof(float), "features_backward"));
    }
    fourier_feature_gradients(stream, x.dtype, call);
    if (dsigma)
      add_partials(stream, "features_backward", {{dsigma.ptr<float>()}}, 1, call.partial, parts,
                   columns);
    return;
  }
  const std::int64_t n = x.numel();
  for_float(x.dtype, "features_backward", [&](auto zero) {
    using T = decltype(zero);
    elementwise_backward_kernel<T>
        <<<blocks_for(n, kMapThreads), kMapThreads, 0, stream_of(stream)>>>(elementwise(call, map),
                                                                            n);
    check_launch("features_backward");
  });
}

}  // namespace fovea::cuda
