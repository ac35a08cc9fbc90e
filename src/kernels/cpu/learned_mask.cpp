#include "kernels/learned_mask.h"

#include <cmath>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

template <class A>
A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}

template <class A>
A clipped(A x) {
  return x < 0 ? A{0} : x > 1 ? A{1} : x;
}

// Flattened: philox4x32 must not stay a function of its own, which the linker would share between
// instruction sets.
[[gnu::flatten]] float uniform_at(const Key& key, std::int64_t i) {
  const float x = uniform_float(random_bits(key, static_cast<std::uint64_t>(i)));
  return x < 1e-6f ? 1e-6f : x > 1 - 1e-6f ? 1 - 1e-6f : x;
}

// z and dz/dG of one entry.
template <class A>
struct Mask {
  A z = 1, slope = 0;
};

template <class A>
class Source {
 public:
  Source(const MaskParts& parts, const MaskRule& rule)
      : parts_(parts),
        rule_(rule),
        tau_(rule.sampled && rule.kind != MaskRule::Kind::magnitude ? *parts.tau.ptr<A>() : A{1}) {}

  std::int64_t of(std::int64_t p) const { return p * parts_.sources / parts_.matrices; }

  // Of matrix p at place i of its source.
  Mask<A> at(std::int64_t p, std::int64_t i) const {
    constexpr A kLow = static_cast<A>(kStretchLow), kSpan = static_cast<A>(kStretchHigh) - kLow;
    if (rule_.kind == MaskRule::Kind::magnitude) return {};
    A x = parts_.g.ptr<A>()[i];
    if (parts_.shift) x += parts_.shift.ptr<A>()[p];
    if (rule_.sampled) {
      const A u = static_cast<A>(parts_.u.ptr<float>()[i]);
      x = (std::log(u) - std::log1p(-u) + x) / tau_;
    }
    const A y = sigmoid(x), slope = y * (1 - y) / tau_;
    switch (rule_.kind) {
      case MaskRule::Kind::concrete:
        if (rule_.sampled) return {y, slope};
        return {x > 0 ? A{1} : A{0}, 0};
      case MaskRule::Kind::hard_concrete: {
        const A stretched = y * kSpan + kLow;
        return {clipped(stretched), stretched > 0 && stretched < 1 ? kSpan * slope : A{0}};
      }
      default:
        return {x > 0 ? A{1} : A{0}, rule_.sampled ? slope : A{0}};
    }
  }
  A kept(std::int64_t i) const {
    return rule_.dense || parts_.m.ptr<std::uint8_t>()[i] != 0 ? A{1} : A{0};
  }

 private:
  const MaskParts& parts_;
  const MaskRule& rule_;
  A tau_;
};

}  // namespace

void learned_mask_forward(StreamRef stream, const View& s, const MaskParts& parts,
                          const MaskRule& rule) {
  const std::int64_t entries = parts.entries;
  for_float(s.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const Source<A> source(parts, rule);
    parallel_for(
        stream, parts.matrices * entries, kGrain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t out = begin; out < end; ++out) {
            const std::int64_t p = out / entries, i = source.of(p) * entries + out % entries;
            const bool pruned = parts.m.ptr<std::uint8_t>()[i] == 0;
            s.ptr<A>()[out] = pruned ? A{0} : source.at(p, i).z * parts.w.ptr<A>()[i];
          }
        });
  });
}

void learned_mask_backward(StreamRef stream, const MaskGradients& into, const View& ds,
                           const MaskParts& parts, const MaskRule& rule) {
  const std::int64_t entries = parts.entries, share = parts.matrices / parts.sources;
  for_float(ds.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const Source<A> source(parts, rule);
    const A* const gradient = ds.ptr<A>();
    parallel_for(stream, parts.sources * entries, kGrain,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t q = i / entries, e = i % entries;
                     const A kept = source.kept(i), w = parts.w.ptr<A>()[i];
                     A dw = 0, dg = 0, whole = 0;
                     for (std::int64_t p = q * share; p < (q + 1) * share; ++p) {
                       const Mask<A> mask = source.at(p, i);
                       const A d = gradient[p * entries + e];
                       dw += mask.z * d;
                       dg += w * d * mask.slope;
                       whole += d;
                     }
                     if (into.w) into.w.ptr<A>()[i] += kept * dw;
                     if (into.g) into.g.ptr<A>()[i] += kept * dg;
                     if (into.s) into.s.ptr<A>()[i] += whole;
                   }
                 });
    if (!into.shift) return;
    parallel_for(stream, parts.matrices, 1, [&](std::int64_t p, std::int64_t) {
      A sum = 0;
      for (std::int64_t e = 0; e < entries; ++e) {
        const std::int64_t i = source.of(p) * entries + e;
        sum += source.kept(i) * parts.w.ptr<A>()[i] * gradient[p * entries + e] *
               source.at(p, i).slope;
      }
      into.shift.ptr<A>()[p] += sum;
    });
  });
}

void logistic_forward(StreamRef stream, const View& y, const View& x, const View& shift,
                      const View& tau, double per_tau) {
  const std::int64_t matrices = y.dim[0], sources = x.dim[0], entries = x.dim[1];
  for_float(y.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const A less = tau ? static_cast<A>(per_tau) * *tau.ptr<A>() : A{0};
    parallel_for(stream, matrices * entries, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t out = begin; out < end; ++out) {
        const std::int64_t p = out / entries;
        const A at = x.ptr<A>()[p * sources / matrices * entries + out % entries];
        y.ptr<A>()[out] = sigmoid(at + (shift ? shift.ptr<A>()[p] : A{0}) - less);
      }
    });
  });
}

void logistic_backward(StreamRef stream, const View& dx, const View& dshift, const View& dy,
                       const View& y) {
  const std::int64_t matrices = y.dim[0], entries = y.dim[1];
  for_float(y.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const auto slope = [&](std::int64_t at) {
      const A p = y.ptr<A>()[at];
      return dy.ptr<A>()[at] * p * (1 - p);
    };
    if (dx) {
      const std::int64_t share = matrices / dx.dim[0];
      parallel_for(stream, dx.dim[0] * entries, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t q = i / entries, e = i % entries;
          A sum = 0;
          for (std::int64_t p = q * share; p < (q + 1) * share; ++p)
            sum += slope(p * entries + e);
          dx.ptr<A>()[i] += sum;
        }
      });
    }
    if (!dshift) return;
    parallel_for(stream, matrices, 1, [&](std::int64_t p, std::int64_t) {
      A sum = 0;
      for (std::int64_t e = 0; e < entries; ++e)
        sum += slope(p * entries + e);
      dshift.ptr<A>()[p] += sum;
    });
  });
}

void uniform_fill(StreamRef stream, const View& u, const Key& key) {
  parallel_for(stream, u.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      u.ptr<float>()[i] = uniform_at(key, i);
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
