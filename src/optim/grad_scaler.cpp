#include "optim/grad_scaler.h"

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::optim {

GradScaler::GradScaler(Ctx& ctx, const ScalerConfig& config, const OptimConfig& optim,
                       std::int64_t elements)
    : args_{config.max_norm, 0, optim.beta1, optim.beta2},
      scales_(ctx.precision == Precision::fp16_mixed),
      scalars_(Tensor::empty({kStepScalars}, DType::f64, ctx.device, "scaler")),
      partials_(Tensor::empty({(elements + kNormChunk - 1) / kNormChunk}, DType::f64, ctx.device,
                              "scaler")),
      mean_(Tensor::empty({1}, state_dtype(ctx.precision), ctx.device, "scaler")) {
  StepScalars initial;
  if (scales_) {
    args_.growth_interval = config.growth_interval;
    initial.scale = config.initial_scale;
  }
  restore(ctx.stream, initial);
}

void GradScaler::stage(Staging& staging, double lr, std::int64_t targets) {
  FOVEA_ASSERT(targets >= 1);
  const double mean = 1.0 / static_cast<double>(targets);
  const auto narrow = static_cast<float>(mean);
  const bool wide = mean_.dtype() == DType::f64;
  staging.upload(scalars_.view().data, &lr, sizeof lr);
  staging.upload(mean_.view().data, wide ? static_cast<const void*>(&mean) : &narrow,
                 static_cast<std::size_t>(mean_.bytes()));
}

Tensor GradScaler::seed(Ctx& ctx) const {
  Tensor out = ctx.empty({1}, mean_.dtype(), "loss_seed");
  FOVEA_ON(ctx.device, scale_by_forward(ctx.stream.ref(), out.view(), mean_.view(),
                                        scalars_.slice(0, 1, 2).view()));
  return out;
}

void GradScaler::decide(Ctx& ctx, const Tensor& gradient) {
  measure(ctx, gradient, 0, gradient.numel());
  decide(ctx);
}

void GradScaler::measure(Ctx& ctx, const Tensor& gradient, std::int64_t begin, std::int64_t end) {
  const std::int64_t elements = gradient.numel(), chunks = partials_.numel();
  FOVEA_ASSERT(begin % kNormChunk == 0 || begin == elements);
  FOVEA_ASSERT(end % kNormChunk == 0 || end == elements);
  const std::int64_t first = (begin + kNormChunk - 1) / kNormChunk,
                     last = (end + kNormChunk - 1) / kNormChunk;
  if (first > 0 || last < chunks) {
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), partials_.view(), 0.0));
  }
  if (begin == end) return;
  FOVEA_ON(ctx.device, squared_norm(ctx.stream.ref(), partials_.slice(0, first, last).view(),
                                    gradient.slice(0, begin, end).view()));
}

void GradScaler::decide(Ctx& ctx) {
  FOVEA_ON(ctx.device, scaler_decide(ctx.stream.ref(), scalars_.view(), partials_.view(), args_));
}

StepScalars GradScaler::state(Stream& stream) const {
  StepScalars out;
  if (scalars_.device().is_meta()) return out;
  stream.copy(&out, scalars_.view().data, sizeof out);
  stream.synchronize();
  return out;
}

void GradScaler::restore(Stream& stream, const StepScalars& state) {
  stream.copy(scalars_.view().data, &state, sizeof state);
  stream.synchronize();
}

}  // namespace fovea::optim
