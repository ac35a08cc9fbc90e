// Positive random features: FAVOR+ and its kin.

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/feature_map.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

constexpr double kClamp = 60;  // of exponents under Stabiliser::constant
constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.69314718055994531;

// Buffers of one block of rows.
template <class C>
struct RandomBlock {
  RandomBlock(std::int64_t directions, std::int64_t width)
      : ldr(padded<C>(directions)),
        ldd(padded<C>(width)),
        memory(kFeatureRows * (ldr + 2 * ldd + 1)),
        p(memory.data()),
        x(p + kFeatureRows * ldr),
        dx(x + kFeatureRows * ldd),
        half_norm(dx + kFeatureRows * ldd) {}
  std::int64_t ldr, ldd;
  Scratch<C> memory;
  C *p, *x, *dx, *half_norm;  // <w_r, x^>; x^; its gradient; |x^|^2 / 2
};

// p, x and half_norm of n rows.
template <class T>
void project(RandomBlock<Compute<T>>& t, const View& x, std::int64_t b, std::int64_t h,
             std::int64_t first, std::int64_t n, const FeatureMap& map, const Compute<T>* w_t,
             std::int64_t width) {
  using C = Compute<T>;
  load_rows<T>(t.x, t.ldd, x, b, h, first, n, map.valid, map.scale);
  tile_product<C>(t.p, t.ldr, {t.x, t.ldd, 1}, w_t, t.ldr, n, width, t.ldr / Lane<C>::width, false);
  for (std::int64_t i = 0; i < n; ++i) {
    C sum = 0;
    for (std::int64_t c = 0; c < width; ++c)
      sum = std::fma(t.x[i * t.ldd + c], t.x[i * t.ldd + c], sum);
    t.half_norm[i] = sum / 2;
  }
}

// The largest <w_r, x^> of a row; with `pair` of w_r and -w_r.
template <class C>
C largest_product(const C* p, std::int64_t directions, bool pair) {
  C most = -std::numeric_limits<C>::infinity();
  for (std::int64_t r = 0; r < directions; ++r) {
    const C at = pair && p[r] < 0 ? -p[r] : p[r];
    most = at > most ? at : most;
  }
  return most;
}

// The whole power of two that brings a row's largest feature into (1/2, 1].
template <class C>
C row_exponent(C largest, C stabiliser, const FeatureMap& map) {
  C top = largest - stabiliser;
  if (map.stabiliser == Stabiliser::constant && top > C(kClamp)) top = C(kClamp);
  return map.eps > 0 ? std::ceil(std::log2(std::exp(top) + static_cast<C>(map.eps)))
                     : std::ceil(top * static_cast<C>(kLog2e));
}

// z = min(z, limit), and open = 0 where that changed it.
inline void clamp_at(Floats& z, Floats& open, Floats limit) {
  open = select(z > limit, splat(0), open);
  z = min(z, limit);
}
inline void clamp_at(double& z, double& open, double limit) {
  open = z > limit ? 0 : open;
  z = z > limit ? limit : z;
}

// e^(sign p_r - half_norm - shift) for every direction, clamped where the map says so.
template <class C, class F>
void for_exponentials(const C* p, std::int64_t directions, C sign, C half_norm, C shift,
                      const FeatureMap& map, F&& fn) {
  const bool clamped = map.stabiliser == Stabiliser::constant;
  const auto minus = every<C>(static_cast<double>(half_norm + (clamped ? C(0) : shift)));
  const auto by = every<C>(static_cast<double>(sign));
  for_lanes<C>(directions, [&](std::int64_t r, auto count) {
    auto z = take(p + r, count) * by - minus;
    auto open = every<C>(1);
    if (clamped) {
      clamp_at(z, open, every<C>(kClamp));
      z = z - every<C>(static_cast<double>(shift));
    }
    fn(r, exp(z), open, count);
  });
}

template <class T>
void map_row(T* y, const Compute<T>* p, std::int64_t directions, Compute<T> half_norm,
             Compute<T> shift, Compute<T> exponent, const FeatureMap& map) {
  using C = Compute<T>;
  if (map.kind == FeatureKind::relu_random) {
    for_lanes<T>(directions, [&](std::int64_t r, auto count) {
      put(y + r, max(take(p + r, count), every<C>(0)) + every<C>(map.offset), count);
    });
    return;
  }
  // Without eps the exponent has no bound.
  const auto eps = every<C>(map.eps == 0 ? 0 : map.eps * std::exp2(-static_cast<double>(exponent)));
  for_exponentials(p, directions, C(1), half_norm, shift, map,
                   [&](std::int64_t r, auto e, auto, auto count) { put(y + r, e + eps, count); });
  if (map.kind != FeatureKind::softmax_pair) return;
  for_exponentials(
      p, directions, C(-1), half_norm, shift, map,
      [&](std::int64_t r, auto e, auto, auto count) { put(y + directions + r, e + eps, count); });
}

// shift = the largest <w_r, x^> of the valid rows of each row's segment.
template <class T>
void shared_stabilisers(StreamRef stream, const View& shift, const View& x, const FeatureMap& map,
                        const FeatureSizes& z, const Directions<Compute<T>>& w_t) {
  using C = Compute<T>;
  C* to = shift.ptr<C>();
  parallel_for(stream, z.batch * z.heads * z.blocks(), 1, [&](std::int64_t at, std::int64_t) {
    RandomBlock<C> t(w_t.count, z.width);
    const std::int64_t head = at / z.blocks(), first = at % z.blocks() * kFeatureRows;
    const std::int64_t b = head / z.heads, h = head % z.heads, n = z.count(first);
    project<T>(t, x, b, h / z.group(), first, n, map, w_t.of(map, h, z.heads), z.width);
    for (std::int64_t i = 0; i < n; ++i)
      to[z.row(b, h, first + i)] =
          is_valid(map.valid, b, first + i)
              ? largest_product(t.p + i * t.ldr, w_t.count, map.kind == FeatureKind::softmax_pair)
              : -std::numeric_limits<C>::infinity();
  });
  for (std::int64_t head = 0; head < z.batch * z.heads; ++head) {
    C* rows = to + head * z.rows;
    for (const TokenRun& run : token_runs(map.segments, map.valid, head / z.heads, z.rows)) {
      C most = -std::numeric_limits<C>::infinity();
      for (std::int64_t i = run.first; i < run.first + run.count; ++i)
        most = rows[i] > most ? rows[i] : most;
      for (std::int64_t i = run.first; i < run.first + run.count; ++i)
        rows[i] = most;
    }
  }
}

// Where the features of a call go.
struct RandomOutput {
  const View &y, &exponent, &shift;
};

// The features of n rows of one head, whose first row is `first_row` of all rows.
template <class T>
void map_block(const RandomOutput& out, const FeatureMap& map, const FeatureSizes& z,
               const RandomBlock<Compute<T>>& t, std::int64_t directions, std::int64_t b,
               std::int64_t first_row, std::int64_t first, std::int64_t n) {
  using C = Compute<T>;
  const bool exponential = map.kind != FeatureKind::relu_random;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = first_row + i;
    T* to = out.y.ptr<T>() + row * z.features;
    C* shifts = exponential ? out.shift.ptr<C>() + row : nullptr;
    if (exponential && out.exponent) out.exponent.ptr<C>()[row] = 0;
    if (!is_valid(map.valid, b, first + i)) {
      if (exponential) *shifts = 0;
      std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(z.features) * sizeof(T));
      continue;
    }
    const C* p = t.p + i * t.ldr;
    C power = 0, all = 0;
    if (exponential) {
      const C most = largest_product(p, directions, map.kind == FeatureKind::softmax_pair);
      const C stabiliser = map.stabiliser == Stabiliser::own      ? most
                           : map.stabiliser == Stabiliser::shared ? *shifts
                                                                  : C(0);
      power = row_exponent<C>(most - t.half_norm[i], stabiliser, map);
      *shifts = all = stabiliser + power * static_cast<C>(kLn2);
      if (out.exponent) out.exponent.ptr<C>()[row] = power;
    }
    map_row<T>(to, p, directions, t.half_norm[i], all, power, map);
  }
}

}  // namespace

void random_forward(StreamRef stream, const View& y, const View& exponent, const View& shift,
                    const View& x, const FeatureMap& map) {
  const FeatureSizes z(y, x);
  for_float(x.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    const Directions<C> w_t(map.w, true);
    if (map.stabiliser == Stabiliser::shared) shared_stabilisers<T>(stream, shift, x, map, z, w_t);
    parallel_for(stream, z.batch * z.heads * z.blocks(), 1, [&](std::int64_t at, std::int64_t) {
      RandomBlock<C> t(w_t.count, z.width);
      const std::int64_t head = at / z.blocks(), first = at % z.blocks() * kFeatureRows;
      const std::int64_t b = head / z.heads, h = head % z.heads, n = z.count(first);
      project<T>(t, x, b, h / z.group(), first, n, map, w_t.of(map, h, z.heads), z.width);
      map_block<T>({y, exponent, shift}, map, z, t, w_t.count, b, z.row(b, h, first), first, n);
    });
  });
}

namespace {

// p becomes the gradient of <w_r, x^>; returns the sum over features of dphi phi, without eps.
template <class T, class G>
Compute<T> product_gradient(Compute<T>* p, const G* dy, std::int64_t directions,
                            Compute<T> half_norm, Compute<T> shift, const FeatureMap& map) {
  using C = Compute<T>;
  C sum = 0;
  if (map.kind == FeatureKind::relu_random) {
    for (std::int64_t r = 0; r < directions; ++r)
      p[r] = p[r] > 0 ? static_cast<C>(load_one(dy + r)) : C(0);
    return sum;
  }
  const bool pair = map.kind == FeatureKind::softmax_pair;
  std::vector<C> minus(pair ? static_cast<std::size_t>(padded<C>(directions)) : 0);
  const auto gather = [&](C* to, const G* from, C sign) {
    for_exponentials(p, directions, sign, half_norm, shift, map,
                     [&](std::int64_t r, auto e, auto open, auto count) {
                       put(to + r, take(from + r, count) * e * open, count);
                     });
  };
  if (pair) gather(minus.data(), dy + directions, C(-1));
  gather(p, dy, C(1));
  for (std::int64_t r = 0; r < directions; ++r) {
    sum += p[r];
    if (!pair) continue;
    const C other = minus[static_cast<std::size_t>(r)];
    sum += other;
    p[r] -= other;
  }
  return sum;
}

}  // namespace

void random_backward(StreamRef stream, const View& dx, const View& dy, const View& x,
                     const View& shift, const FeatureMap& map) {
  if (!dx) return;
  const FeatureSizes z(dy, x);
  for_float(x.dtype, [&]<class T>(T*) {
    using C = Compute<T>;
    const Directions<C> w_t(map.w, true), w(map.w, false);
    parallel_for(stream, z.batch * z.x_heads * z.blocks(), 1, [&](std::int64_t at, std::int64_t) {
      RandomBlock<C> t(w.count, z.width);
      const std::int64_t head = at / z.blocks(), first = at % z.blocks() * kFeatureRows;
      const std::int64_t b = head / z.x_heads, hx = head % z.x_heads, n = z.count(first);
      Scratch<C> sums(kFeatureRows * t.ldd);
      std::memset(static_cast<void*>(sums.data()), 0,
                  static_cast<std::size_t>(kFeatureRows * t.ldd) * sizeof(C));
      for (std::int64_t h = hx * z.group(); h < (hx + 1) * z.group(); ++h) {
        project<T>(t, x, b, hx, first, n, map, w_t.of(map, h, z.heads), z.width);
        for (std::int64_t i = 0; i < n; ++i) {
          C* p = t.p + i * t.ldr;
          const std::int64_t row = z.row(b, h, first + i);
          C past = 0;  // what -|x^|^2 / 2 takes back
          if (!is_valid(map.valid, b, first + i)) {
            std::memset(static_cast<void*>(p), 0, static_cast<std::size_t>(t.ldr) * sizeof(C));
          } else {
            for_float(dy.dtype, [&]<class G>(G*) {
              if constexpr (sizeof(Compute<G>) == sizeof(C))
                past = product_gradient<T>(p, dy.ptr<G>() + row * z.features, w.count,
                                           t.half_norm[i], shift ? shift.ptr<C>()[row] : C(0), map);
            });
          }
          for (std::int64_t c = 0; c < z.width; ++c)
            sums[i * t.ldd + c] -= past * t.x[i * t.ldd + c];
        }
        tile_product<C>(sums.data(), t.ldd, {t.p, t.ldr, 1}, w.of(map, h, z.heads), t.ldd, n,
                        w.count, t.ldd / Lane<C>::width, true);
      }
      T* to = dx.ptr<T>() + ((b * z.x_heads + hx) * z.rows + first) * z.width;
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t c = 0; c < z.width; ++c)
          store_one(to + i * z.width + c, sums[i * t.ldd + c] * static_cast<C>(map.scale));
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
