#include "optim/adamw.h"

namespace fovea::optim {

AdamW::AdamW(const OptimConfig& config)
    : args_{config.beta1, config.beta2, config.eps, config.weight_decay} {}

void AdamW::step(Ctx& ctx, ParameterStore& store, const Tensor& gradient,
                 const GradScaler& scaler) const {
  FOVEA_ON(ctx.device,
           adamw_step(ctx.stream.ref(), store.masters().view(), store.computes().view(),
                      store.first_moment().view(), store.second_moment().view(), gradient.view(),
                      store.decay_mask().view(), scaler.scalars().view(), args_));
}

}  // namespace fovea::optim
