#include "optim/grad_scaler.h"

#include <cstring>

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::optim {

GradScaler::GradScaler(Ctx& ctx, const ScalerConfig& config, const OptimConfig& optim,
                       std::int64_t elements)
    : args_{config.max_norm, 0, optim.beta1, optim.beta2},
      scales_(ctx.precision == Precision::fp16_mixed),
      scalars_(Tensor::empty({kStepScalars}, DType::f64, ctx.device, "scaler")),
      partials_(Tensor::empty({(elements + kNormChunk - 1) / kNormChunk}, DType::f64, ctx.device,
                              "scaler")) {
  StepScalars initial;
  if (scales_) {
    args_.growth_interval = config.growth_interval;
    initial.scale = config.initial_scale;
  }
  restore(initial);
}

Tensor GradScaler::seed(Ctx& ctx, std::int64_t targets) const {
  FOVEA_ASSERT(targets >= 1);
  const DType dtype = state_dtype(ctx.precision);
  const Tensor mean = ctx.empty({1}, dtype, "loss_seed");
  Tensor out = ctx.empty({1}, dtype, "loss_seed");
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), mean.view(), 1.0 / static_cast<double>(targets)));
  FOVEA_ON(ctx.device, scale_by_forward(ctx.stream.ref(), out.view(), mean.view(),
                                        scalars_.slice(0, 1, 2).view()));
  return out;
}

void GradScaler::decide(Ctx& ctx, const Tensor& gradient, double lr) {
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), scalars_.slice(0, 0, 1).view(), lr));
  FOVEA_ON(ctx.device, squared_norm(ctx.stream.ref(), partials_.view(), gradient.view()));
  FOVEA_ON(ctx.device, scaler_decide(ctx.stream.ref(), scalars_.view(), partials_.view(), args_));
}

StepScalars GradScaler::state() const {
  StepScalars out;
  if (!scalars_.device().is_meta())
    std::memcpy(static_cast<void*>(&out), scalars_.data<double>(), sizeof out);
  return out;
}

void GradScaler::restore(const StepScalars& state) {
  if (!scalars_.device().is_meta()) std::memcpy(scalars_.data<double>(), &state, sizeof state);
}

}  // namespace fovea::optim
