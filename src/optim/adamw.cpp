#include "optim/adamw.h"

namespace fovea::optim {

AdamW::AdamW(const OptimConfig& config)
    : args_{config.beta1, config.beta2, config.eps, config.weight_decay} {}

void AdamW::step(Ctx& ctx, ParameterStore& store, const Tensor& gradient,
                 const GradScaler& scaler) const {
  const std::int64_t begin = store.moments_begin(), end = store.moments_end();
  if (begin == end) return;
  const Tensor masters = store.masters().slice(0, begin, end),
               computes = store.computes().slice(0, begin, end),
               own = gradient.slice(0, begin, end),
               decay = store.decay_mask().slice(0, begin / kDecayBlock, end / kDecayBlock),
               factors = store.lr_factors().defined()
                             ? store.lr_factors().slice(0, begin / kDecayBlock, end / kDecayBlock)
                             : Tensor();
  FOVEA_ON(ctx.device,
           adamw_step(ctx.stream.ref(), masters.view(), computes.view(),
                      store.first_moment().view(), store.second_moment().view(), own.view(),
                      decay.view(), factors.view(), scaler.scalars().view(), args_));
}

}  // namespace fovea::optim
