#include "kernels/optim.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Sixteen running sums on every instruction set, so that the norm has the same bits on all of them.
constexpr std::int64_t kSums = 16;

template <class T>
double sum_of_squares(const T* x, std::int64_t n) {
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      const double v = static_cast<double>(load_one(x + i + j));
      sums[j] += v * v;
    }
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) {
    const double v = static_cast<double>(load_one(x + i));
    sums[j] += v * v;
  }
  for (std::int64_t half = kSums / 2; half > 0; half /= 2) {
    for (std::int64_t j = 0; j < half; ++j)
      sums[j] += sums[j + half];
  }
  return sums[0];
}

// One decay block: the same rate and the same `shrink` for all its elements.
template <class T, class C>
class BlockUpdate {
 public:
  using V = typename Lane<T>::V;
  BlockUpdate(const StepScalars& now, const AdamWArgs& args)
      : multiplier_(every<T>(now.multiplier)),
        beta1_(every<T>(args.beta1)),
        beta2_(every<T>(args.beta2)),
        rest1_(every<T>(1 - args.beta1)),
        rest2_(every<T>(1 - args.beta2)),
        correction2_(every<T>(1 / now.correction2)),
        eps_(every<T>(args.eps)),
        lr_(now.lr),
        correction1_(now.correction1),
        weight_decay_(args.weight_decay) {}

  // `c`, the rounded copy, may be null.
  void run(T* w, C* c, T* m, T* v, const T* gradient, bool decays, double lr_factor,
           std::int64_t n) const {
    const double lr = lr_ * lr_factor;
    const V step = every<T>(lr / correction1_),
            shrink = every<T>(decays ? 1 - lr * weight_decay_ : 1);
    for_lanes<T>(n, [&](std::int64_t i, auto count) {
      const V g = take(gradient + i, count) * multiplier_;
      const V first = beta1_ * take(m + i, count) + rest1_ * g;
      const V second = beta2_ * take(v + i, count) + rest2_ * g * g;
      const V moved =
          take(w + i, count) * shrink - step * first / (sqrt(second * correction2_) + eps_);
      put(m + i, first, count);
      put(v + i, second, count);
      put(w + i, moved, count);
      if constexpr (Lane<T>::width == Lane<C>::width) {
        if (c != nullptr) put(c + i, moved, count);
      }
    });
    if constexpr (Lane<T>::width != Lane<C>::width) {
      for (std::int64_t i = 0; c != nullptr && i < n; ++i)
        store_one(c + i, static_cast<Compute<C>>(w[i]));
    }
  }

 private:
  V multiplier_, beta1_, beta2_, rest1_, rest2_, correction2_, eps_;
  double lr_, correction1_, weight_decay_;
};

template <class T, class C>
void adamw(StreamRef stream, const View& master, C* compute, const View& first, const View& second,
           const View& gradient, const View& decay_blocks, const View& lr_blocks,
           const StepScalars& now, const AdamWArgs& args) {
  const BlockUpdate<T, C> update(now, args);
  const std::int64_t n = master.numel(), blocks = (n + kDecayBlock - 1) / kDecayBlock;
  parallel_for(stream, blocks, kGrain / kDecayBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t at = block * kDecayBlock, left = n - at;
      update.run(master.ptr<T>() + at, compute != nullptr ? compute + at : nullptr,
                 first.ptr<T>() + at, second.ptr<T>() + at, gradient.ptr<T>() + at,
                 decay_blocks.ptr<std::uint8_t>()[block] != 0,
                 lr_blocks ? static_cast<double>(lr_blocks.ptr<float>()[block]) : 1,
                 left < kDecayBlock ? left : kDecayBlock);
    }
  });
}

}  // namespace

void squared_norm(StreamRef stream, const View& partials, const View& x) {
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, x.numel(), kNormChunk, [&](std::int64_t begin, std::int64_t end) {
      partials.ptr<double>()[begin / kNormChunk] = sum_of_squares(x.ptr<T>() + begin, end - begin);
    });
  });
}

void scaler_decide(StreamRef /*stream*/, const View& scalars, const View& partials,
                   const DecideArgs& args) {
  constexpr double kMaxScale = 16777216;
  StepScalars& s = *scalars.ptr<StepScalars>();
  double squares = 0;
  for (std::int64_t i = 0; i < partials.numel(); ++i)
    squares += partials.ptr<double>()[i];
  s.norm = std::sqrt(squares) / s.scale;
  s.finite = std::isfinite(s.norm) ? 1 : 0;
  const double clip = args.max_norm > 0 && s.norm > args.max_norm ? args.max_norm / s.norm : 1;
  s.multiplier = clip / s.scale;
  if (s.finite == 0) {
    s.scale = s.scale > 2 ? s.scale / 2 : 1;
    s.good_steps = 0;
    s.skipped_in_a_row += 1;
    s.skipped += 1;
    return;
  }
  s.skipped_in_a_row = 0;
  s.adam_count += 1;
  s.correction1 = 1 - std::pow(args.beta1, s.adam_count);
  s.correction2 = 1 - std::pow(args.beta2, s.adam_count);
  s.good_steps += 1;
  if (args.growth_interval > 0 && s.good_steps >= args.growth_interval) {
    s.scale = s.scale * 2 < kMaxScale ? s.scale * 2 : kMaxScale;
    s.good_steps = 0;
  }
}

void adamw_step(StreamRef stream, const View& master, const View& compute, const View& first,
                const View& second, const View& gradient, const View& decay_blocks,
                const View& lr_blocks, const View& scalars, const AdamWArgs& args) {
  const StepScalars& now = *scalars.ptr<StepScalars>();
  if (now.finite == 0) return;
  const bool separate = compute && compute.data != master.data;
  for_float(separate ? compute.dtype : master.dtype, [&]<class C>(C*) {
    C* const rounded = separate ? compute.ptr<C>() : nullptr;
    if (master.dtype == DType::f64) {
      adamw<double>(stream, master, rounded, first, second, gradient, decay_blocks, lr_blocks, now,
                    args);
    } else {
      adamw<float>(stream, master, rounded, first, second, gradient, decay_blocks, lr_blocks, now,
                   args);
    }
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
