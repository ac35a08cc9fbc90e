// RFA's sines and cosines of random projections.

#include <cmath>

#include "kernels/cpu/feature_map.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

constexpr double kNormEps = 1e-3;

// Sine and cosine to within 2 units in the last place of 1 for |x| below 1e4: x = n pi / 2 + r,
// |r| <= pi / 4, by their Taylor polynomials of degrees 9 and 8.
inline void sine_cosine(Floats x, Floats& sine, Floats& cosine) {
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = fused(x, splat(0.636619772f), magic);
  const Floats n = shifted - magic;
  Floats r = fused(n, splat(-1.5703125f), x);
  r = fused(n, splat(-4.83751296e-4f), r);
  r = fused(n, splat(-7.54978995e-8f), r);
  const Floats square = r * r;
  Floats s = splat(1.0f / 362880);
  s = fused(s, square, splat(-1.0f / 5040));
  s = fused(s, square, splat(1.0f / 120));
  s = fused(s, square, splat(-1.0f / 6));
  s = fused(s * square, r, r);
  Floats c = splat(1.0f / 40320);
  c = fused(c, square, splat(-1.0f / 720));
  c = fused(c, square, splat(1.0f / 24));
  c = fused(c, square, splat(-0.5f));
  c = fused(c, square, splat(1.0f));
  const Ints quarter = reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic);
  const Ints swap = -(quarter & 1);
  const Ints sign_s = (quarter & 2) << 30, sign_c = ((quarter + 1) & 2) << 30;
  sine = reinterpret_cast<Floats>(reinterpret_cast<Ints>(select(swap, c, s)) ^ sign_s);
  cosine = reinterpret_cast<Floats>(reinterpret_cast<Ints>(select(swap, s, c)) ^ sign_c);
}
inline void sine_cosine(double x, double& sine, double& cosine) {
  sine = std::sin(x);
  cosine = std::cos(x);
}

// Buffers of one block of rows.
template <class C>
struct FourierBlock {
  FourierBlock(std::int64_t directions, std::int64_t width)
      : ldr(padded<C>(directions)),
        ldd(padded<C>(width)),
        memory(kFeatureRows * (ldr + 3 * ldd + 1)),
        u(memory.data()),
        x(u + kFeatureRows * ldr),
        scaled(x + kFeatureRows * ldd),
        dx(scaled + kFeatureRows * ldd),
        norm(dx + kFeatureRows * ldd) {}
  std::int64_t ldr, ldd;
  Scratch<C> memory;
  C *u, *x, *scaled, *dx, *norm;  // u_r; x; sigma x~ / t; the gradient of sigma x~ / t; |x|
};

// u, x, scaled and norm of n rows under head h.
template <class T>
void project(FourierBlock<Compute<T>>& t, const View& x, std::int64_t b, std::int64_t hx,
             std::int64_t h, std::int64_t first, std::int64_t n, const FeatureMap& map,
             const Compute<T>* w_t, std::int64_t width) {
  using C = Compute<T>;
  load_rows<T>(t.x, t.ldd, x, b, hx, first, n, map.valid, 1);
  const T* sigma = map.sigma.ptr<T>() + h * map.sigma.stride[0];
  for (std::int64_t i = 0; i < n; ++i) {
    const C* from = t.x + i * t.ldd;
    C sum = 0;
    for (std::int64_t c = 0; c < width; ++c)
      sum = std::fma(from[c], from[c], sum);
    t.norm[i] = std::sqrt(sum);
    const C by = 1 / ((t.norm[i] + C(kNormEps)) * static_cast<C>(map.temperature));
    for (std::int64_t c = 0; c < t.ldd; ++c)
      t.scaled[i * t.ldd + c] = c < width ? from[c] * by * load_one(sigma + c) : C(0);
  }
  tile_product<C>(t.u, t.ldr, {t.scaled, t.ldd, 1}, w_t, t.ldr, n, width, t.ldr / Lane<C>::width,
                  false);
}

}  // namespace

void fourier_forward(StreamRef stream, const View& y, const View& x, const FeatureMap& map) {
  const FeatureSizes z(y, x);
  for_float(x.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    const Directions<C> w_t(map.w, true);
    parallel_for(stream, z.batch * z.heads * z.blocks(), 1, [&](std::int64_t at, std::int64_t) {
      FourierBlock<C> t(w_t.count, z.width);
      const std::int64_t head = at / z.blocks(), first = at % z.blocks() * kFeatureRows;
      const std::int64_t b = head / z.heads, h = head % z.heads, n = z.count(first);
      project<T>(t, x, b, h / z.group(), h, first, n, map, w_t.of(map, h, z.heads), z.width);
      for (std::int64_t i = 0; i < n; ++i) {
        T* to = y.ptr<T>() + z.row(b, h, first + i) * z.features;
        if (!is_valid(map.valid, b, first + i)) {
          std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(z.features) * sizeof(T));
          continue;
        }
        for_lanes<T>(w_t.count, [&](std::int64_t r, auto count) {
          Vector<C> sine, cosine;
          sine_cosine(take(t.u + i * t.ldr + r, count), sine, cosine);
          put(to + r, sine, count);
          put(to + w_t.count + r, cosine, count);
        });
      }
    });
  });
}

namespace {

// u becomes its gradient.
template <class C, class G>
void angle_gradient(C* u, const G* dy, std::int64_t directions) {
  for_lanes<C>(directions, [&](std::int64_t r, auto count) {
    Vector<C> sine, cosine;
    sine_cosine(take(u + r, count), sine, cosine);
    put(u + r, take(dy + r, count) * cosine - take(dy + directions + r, count) * sine, count);
  });
}

// From the gradient of sigma x~ / t to those of x, added to `dx`, and of sigma, added to `dsigma`.
template <class T>
void row_gradient(Compute<T>* dx, Compute<T>* dsigma, const FourierBlock<Compute<T>>& t,
                  std::int64_t i, const T* sigma, double temperature, std::int64_t width) {
  using C = Compute<T>;
  const C *x = t.x + i * t.ldd, *g = t.dx + i * t.ldd;
  const C norm = t.norm[i], all = norm + C(kNormEps), by = 1 / (static_cast<C>(temperature) * all);
  C along = 0;  // <x, dx~> / t
  for (std::int64_t c = 0; c < width; ++c)
    along += x[c] * g[c] * load_one(sigma + c);
  const C back = norm > 0 ? along * by / (norm * all) : C(0);
  for (std::int64_t c = 0; c < width; ++c) {
    dx[c] += g[c] * load_one(sigma + c) * by - x[c] * back;
    if (dsigma != nullptr) dsigma[c] += g[c] * x[c] * by;
  }
}

// All blocks of x's head hx, so that every sum over rows has one order.
template <class T>
void backward_head(const View& dx, const View& dsigma, const View& dy, const View& x,
                   const FeatureMap& map, const FeatureSizes& z, const Directions<Compute<T>>& w_t,
                   const Directions<Compute<T>>& w, std::int64_t hx) {
  using C = Compute<T>;
  FourierBlock<C> t(w.count, z.width);
  Scratch<C> sums(kFeatureRows * z.width);
  for (std::int64_t at = 0; at < z.batch * z.blocks(); ++at) {
    const std::int64_t b = at / z.blocks(), first = at % z.blocks() * kFeatureRows;
    const std::int64_t n = z.count(first);
    std::memset(static_cast<void*>(sums.data()), 0,
                static_cast<std::size_t>(n * z.width) * sizeof(C));
    for (std::int64_t h = hx * z.group(); h < (hx + 1) * z.group(); ++h) {
      project<T>(t, x, b, hx, h, first, n, map, w_t.of(map, h, z.heads), z.width);
      for (std::int64_t i = 0; i < n; ++i) {
        for_float(dy.dtype, [&]<class G>(G*) {
          if constexpr (sizeof(Compute<G>) == sizeof(C))
            angle_gradient(t.u + i * t.ldr, dy.ptr<G>() + z.row(b, h, first + i) * z.features,
                           w.count);
        });
      }
      tile_product<C>(t.dx, t.ldd, {t.u, t.ldr, 1}, w.of(map, h, z.heads), t.ldd, n, w.count,
                      t.ldd / Lane<C>::width, false);
      for (std::int64_t i = 0; i < n; ++i) {
        if (!is_valid(map.valid, b, first + i)) continue;
        row_gradient<T>(sums.data() + i * z.width, dsigma ? dsigma.ptr<C>() + h * z.width : nullptr,
                        t, i, map.sigma.ptr<T>() + h * map.sigma.stride[0], map.temperature,
                        z.width);
      }
    }
    if (!dx) continue;
    T* to = dx.ptr<T>() + ((b * z.x_heads + hx) * z.rows + first) * z.width;
    for (std::int64_t c = 0; c < n * z.width; ++c)
      store_one(to + c, sums[c]);
  }
}

}  // namespace

void fourier_backward(StreamRef stream, const View& dx, const View& dsigma, const View& dy,
                      const View& x, const FeatureMap& map) {
  const FeatureSizes z(dy, x);
  for_float(x.dtype, [&]<class T>(T*) {
    const Directions<Compute<T>> w_t(map.w, true), w(map.w, false);
    parallel_for(stream, z.x_heads, 1, [&](std::int64_t hx, std::int64_t) {
      backward_head<T>(dx, dsigma, dy, x, map, z, w_t, w, hx);
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
