#include "kernels/cpu/feature_map.h"

#include <cmath>

namespace fovea::cpu::FOVEA_ISA {

namespace {

inline Floats where_positive(Floats x, Floats yes) {
  return select(x > splat(0), yes, splat(0));
}
inline double where_positive(double x, double yes) {
  return x > 0 ? yes : 0;
}

// Sine and cosine of the angle of a position.
template <class C>
struct Turn {
  C sine, cosine;
  Turn(const FeatureMap& map, std::int64_t b, std::int64_t i) {
    const View& places = map.positions;
    const std::int64_t place =
        places ? places.ptr<std::int32_t>()[b * places.stride[0] + i * places.stride[1]] : i;
    const double angle = 1.5707963267948966 * static_cast<double>(place + 1) / map.reference;
    sine = static_cast<C>(std::sin(angle));
    cosine = static_cast<C>(std::cos(angle));
  }
};

template <class T>
void map_row(T* y, const T* x, const FeatureMap& map, std::int64_t b, std::int64_t i,
             std::int64_t width) {
  using C = Compute<T>;
  if (map.kind == FeatureKind::cosine) {
    const Turn<C> turn(map, b, i);
    for_lanes<T>(width, [&](std::int64_t c, auto count) {
      const auto kept = max(take(x + c, count), every<C>(0));
      put(y + c, kept * turn.sine, count);
      put(y + width + c, kept * turn.cosine, count);
    });
    return;
  }
  const auto zero = every<C>(0), scale = every<C>(map.scale), offset = every<C>(map.offset);
  for_lanes<T>(width, [&](std::int64_t c, auto count) {
    const auto at = take(x + c, count) * scale;
    put(y + c,
        map.kind == FeatureKind::elu ? max(at, zero) + exp(min(at, zero)) : max(at, zero) + offset,
        count);
  });
}

template <class T, class G>
void row_gradient(T* dx, const G* dy, const T* x, const FeatureMap& map, std::int64_t b,
                  std::int64_t i, std::int64_t width) {
  using C = Compute<T>;
  if (map.kind == FeatureKind::cosine) {
    const Turn<C> turn(map, b, i);
    for_lanes<T>(width, [&](std::int64_t c, auto count) {
      const auto both = take(dy + c, count) * turn.sine + take(dy + width + c, count) * turn.cosine;
      put(dx + c, where_positive(take(x + c, count), both), count);
    });
    return;
  }
  const auto zero = every<C>(0), scale = every<C>(map.scale);
  for_lanes<T>(width, [&](std::int64_t c, auto count) {
    const auto at = take(x + c, count) * scale, up = take(dy + c, count) * scale;
    put(dx + c, map.kind == FeatureKind::elu ? up * exp(min(at, zero)) : where_positive(at, up),
        count);
  });
}

template <class T>
const T* row_of(const View& x, std::int64_t b, std::int64_t h, std::int64_t i) {
  return x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + i * x.stride[2];
}

// dy is of the compute type or of x's own.
template <class T, class F>
void with_gradient(DType dtype, F&& fn) {
  if (dtype == DType::f32 && sizeof(T) == 2)
    fn(static_cast<Compute<T>*>(nullptr));
  else
    fn(static_cast<T*>(nullptr));
}

}  // namespace

void elementwise_forward(StreamRef stream, const View& y, const View& x, const FeatureMap& map) {
  const FeatureSizes z(y, x);
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, z.batch * z.heads * z.rows, grain_rows(z.features),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t r = begin; r < end; ++r) {
                     const std::int64_t i = r % z.rows, head = r / z.rows;
                     const std::int64_t b = head / z.heads, h = head % z.heads / z.group();
                     T* to = y.ptr<T>() + r * z.features;
                     if (is_valid(map.valid, b, i)) {
                       map_row(to, row_of<T>(x, b, h, i), map, b, i, z.width);
                     } else {
                       std::memset(static_cast<void*>(to), 0,
                                   static_cast<std::size_t>(z.features) * sizeof(T));
                     }
                   }
                 });
  });
}

void elementwise_backward(StreamRef stream, const View& dx, const View& dy, const View& x,
                          const FeatureMap& map) {
  if (!dx) return;
  const FeatureSizes z(dy, x);
  for_float(x.dtype, [&]<class T>(T*) {
    with_gradient<T>(dy.dtype, [&]<class G>(G*) {
      parallel_for(stream, z.batch * z.heads * z.rows, grain_rows(z.features),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t r = begin; r < end; ++r) {
                       const std::int64_t i = r % z.rows, head = r / z.rows;
                       const std::int64_t b = head / z.heads, h = head % z.heads;
                       T* to = dx.ptr<T>() + r * z.width;
                       if (is_valid(map.valid, b, i)) {
                         row_gradient(to, dy.ptr<G>() + r * z.features, row_of<T>(x, b, h, i), map,
                                      b, i, z.width);
                       } else {
                         std::memset(static_cast<void*>(to), 0,
                                     static_cast<std::size_t>(z.width) * sizeof(T));
                       }
                     }
                   });
    });
  });
}

void features_forward(StreamRef stream, const View& y, const View& exponent, const View& shift,
                      const View& x, const FeatureMap& map) {
  switch (map.kind) {
    case FeatureKind::softmax:
    case FeatureKind::softmax_pair:
    case FeatureKind::relu_random:
      return random_forward(stream, y, exponent, shift, x, map);
    case FeatureKind::fourier:
      return fourier_forward(stream, y, x, map);
    case FeatureKind::relu:
    case FeatureKind::elu:
    case FeatureKind::cosine:
      return elementwise_forward(stream, y, x, map);
  }
}

void features_backward(StreamRef stream, const View& dx, const View& dsigma, const View& dy,
                       const View& x, const View& shift, const FeatureMap& map) {
  switch (map.kind) {
    case FeatureKind::softmax:
    case FeatureKind::softmax_pair:
    case FeatureKind::relu_random:
      return random_backward(stream, dx, dy, x, shift, map);
    case FeatureKind::fourier:
      return fourier_backward(stream, dx, dsigma, dy, x, map);
    case FeatureKind::relu:
    case FeatureKind::elu:
    case FeatureKind::cosine:
      return elementwise_backward(stream, dx, dy, x, map);
  }
}

}  // namespace fovea::cpu::FOVEA_ISA
