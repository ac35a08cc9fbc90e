#include "attention/spa/learned.h"

#include <algorithm>
#include <cmath>

#include "attention/spa/prune.h"
#include "attention/spa/schedule.h"
#include "autograd/ops/elementwise.h"
#include "core/log.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::attention::spa {

namespace {

constexpr std::int64_t kLookEvery = 100;  // steps

bool due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

std::vector<double> host_values(Ctx& ctx, const Tensor& x) {
  return x.device().is_cpu() ? x.values() : x.to(kCpu, ctx.stream).values();
}

// Where a tensor of the method lies now: the store moves buffers to its device, a method that
// stands alone on meta keeps them.
Tensor placed(Ctx& ctx, const Tensor& x, const Shape& shape) {
  const bool here = x.device() == ctx.device || ctx.device.is_meta();
  return (here ? x : x.to(ctx.device, ctx.stream)).reshape(shape);
}

}  // namespace

Var LearnedMatrix::three(Ctx& ctx, const nn::Parameter& parameter) const {
  const Shape& shape = parameter.shape;
  const Shape whole{settings_.matrices, settings_.pattern.in, settings_.pattern.out};
  return shape == whole ? parameter.var() : reshape(ctx, parameter.var(), whole);
}

const Tensor& LearnedMatrix::tau(Ctx& ctx) {
  const DType dtype = state_dtype(ctx.precision);
  if (!tau_.defined() || !(tau_.device() == ctx.device) || tau_.dtype() != dtype) {
    tau_ = Tensor::empty({1}, dtype, ctx.device, "spa_tau");
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), tau_.view(), temperature(learn(), nn::Clock{})));
  }
  return tau_;
}

Var LearnedMatrix::matrix(Ctx& ctx) {
  LearnedMask mask;
  mask.w = three(ctx, parts_.w);
  mask.g = three(ctx, parts_.g);
  if (parts_.shift != nullptr) mask.shift = parts_.shift->var();
  const Shape shape = mask.w.shape();
  if (parts_.u != nullptr) mask.u = placed(ctx, *parts_.u, shape);
  mask.tau = tau(ctx);
  mask.m = placed(ctx, *parts_.m, shape);
  mask.rule = {.kind = learn().mode, .sampled = ctx.training, .dense = learn().dense_shadow};
  if (parts_.whole != nullptr) mask.whole = parts_.whole->grad;
  return masked_matrix(ctx, mask);
}

void LearnedMatrix::penalty(Ctx& ctx, std::vector<Var>& into) {
  if (!learn().draws() || learn().lambda0 == 0) return;
  // An entry of hard concrete is not zero above a threshold that moves with the temperature.
  const double per_tau =
      learn().mode == MaskRule::Kind::hard_concrete ? std::log(-kStretchLow / kStretchHigh) : 0;
  const Var shift = parts_.shift != nullptr ? parts_.shift->var() : Var();
  const Var chance = logistic(ctx, three(ctx, parts_.g), shift, tau(ctx), per_tau);
  into.push_back(scale(ctx, sum(ctx, chance), learn().lambda0));
}

void LearnedMatrix::before_step(Ctx& ctx, const nn::Clock& clock, const std::string& path) {
  if (clock.step == 0) {
    for (const std::string& odd : oddities(learn(), settings_.pattern.out, clock))
      log::warn_once(odd);
  }
  if (!learn().draws()) return;
  FOVEA_ON(ctx.device, uniform_fill(ctx.stream.ref(), parts_.u->view(), ctx.key(cat(path, ".u"))));
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), tau(ctx).view(), temperature(learn(), clock)));
}

LearnedState LearnedMatrix::state_of(Ctx& ctx, const nn::Clock& clock) const {
  LearnedState out;
  out.w = host_values(ctx, parts_.w.master);
  out.g = host_values(ctx, parts_.g.master);
  for (const double on : host_values(ctx, *parts_.m))
    out.m.push_back(on != 0 ? 1 : 0);
  if (parts_.u != nullptr) out.u = host_values(ctx, *parts_.u);
  out.rows = settings_.pattern.in;
  out.cols = settings_.pattern.out;
  // u is still that of the step which has just ended.
  const std::int64_t drawn = std::max<std::int64_t>(clock.step - 1, 0);
  out.tau = temperature(learn(), {drawn, clock.max_steps, clock.warmup_steps});
  return out;
}

double LearnedMatrix::target_density(const nn::Clock& clock) const {
  if (learn().prune_every == 0) return learn().draws() ? 1 - learn().rho : 1;
  const double least =
      static_cast<double>(learn().min_per_row) / static_cast<double>(settings_.pattern.out);
  return std::min(learn().first_density(), std::max(1 - sparsity(learn(), clock), least));
}

void LearnedMatrix::prune(Ctx& ctx, const nn::Clock& clock, const std::string& path,
                          LearnedState& state) {
  const auto size = static_cast<std::size_t>(state.rows * state.cols);
  const auto keep = static_cast<std::int64_t>(
      std::floor((1 - sparsity(learn(), clock)) * static_cast<double>(size) + 0.5));
  using Regrow = LearnChoice::Regrow;
  std::vector<double> appeal;
  if (learn().regrow == Regrow::grad) {
    appeal = host_values(ctx, parts_.whole->master);
  } else if (learn().regrow == Regrow::random) {
    const NamedStream stream(ctx.seed, cat(path, ".regrow.", clock.step));
    for (std::size_t i = 0; i < state.w.size(); ++i)
      appeal.push_back(stream.uniform(i));
  }
  std::vector<double> stays(state.w.size(), 1);  // 0: the optimizer forgets
  bool moved = false;
  for (std::size_t first = 0; first < state.w.size(); first += size) {
    const auto part = [&](auto& all) { return std::span(all).subspan(first, size); };
    std::vector<double> score(size);
    for (std::size_t i = 0; i < size; ++i)
      score[i] = learn().draws() ? state.g[first + i] : std::fabs(state.w[first + i]);
    Keep mask = pruned(score, state.cols, keep, learn().min_per_row,
                       learn().dense_shadow ? std::span<const std::uint8_t>() : part(state.m));
    Exchange exchange;
    if (learn().regrow != Regrow::none)
      exchange = exchanged(part(state.w), part(appeal), mask, regrow_share(learn(), clock));
    for (const std::size_t i : exchange.dropped)
      mask[i] = 0;
    const auto start_anew = [&](std::size_t i) {
      part(state.w)[i] = 0;
      part(stays)[i] = 0;
      moved = true;
    };
    for (const std::size_t i : exchange.grown) {
      mask[i] = 1;
      start_anew(i);
    }
    for (std::size_t i = 0; i < size && !learn().dense_shadow; ++i) {
      if (mask[i] == 0) start_anew(i);
    }
    std::copy(mask.begin(), mask.end(), part(state.m).begin());
  }
  transfer(*parts_.m,
           Tensor::from(std::vector<double>(state.m.begin(), state.m.end()), parts_.m->shape(),
                        DType::u8),
           ctx.stream);
  if (!moved) return;
  transfer(parts_.w.master, Tensor::from(state.w, parts_.w.shape, parts_.w.master.dtype()),
           ctx.stream);
  const Tensor kept = Tensor::from(stays, parts_.w.shape, DType::u8);
  for (const nn::Parameter* parameter : {&parts_.w, &parts_.g}) {
    if (parameter->forget) parameter->forget(ctx, kept);
  }
}

void LearnedMatrix::after_step(Ctx& ctx, const nn::Clock& clock, const std::string& path) {
  const bool prunes = due(clock.step, learn().prune_every) && parts_.w.grad != nullptr;
  const bool ends = clock.max_steps > 0 && clock.step >= clock.max_steps;
  if (ctx.device.is_meta() || (!prunes && !ends && !due(clock.step, kLookEvery))) return;
  LearnedState state = state_of(ctx, clock);
  if (prunes) prune(ctx, clock, path, state);
  health_ = health_of(state, learn());
  looked_at_ = clock.step;
  const std::string wrong = complaint(*health_, target_density(clock), learn());
  watch_.look(clock, !wrong.empty(), kLookEvery);
  if (watch_.alarms() && !warned_) log::warn(cat(path, " at step ", clock.step, ": ", wrong));
  warned_ = warned_ || watch_.alarms();
}

void LearnedMatrix::measure(const nn::Clock& clock, const std::string& path,
                            std::vector<nn::Measure>& into) const {
  if (!health_ || looked_at_ != clock.step) return;
  const auto add = [&](const char* name, double value) {
    into.push_back({cat(path, ".", name), value});
  };
  add("density", health_->density);
  if (learn().draws()) {
    add("expected_density", health_->expected);
    add("entropy", health_->entropy);
  }
  add("dead_rows", health_->dead_rows);
  add("dead_columns", health_->dead_columns);
  add("norm", health_->norm);
  if (learn().draws()) add("frozen", health_->frozen);
}

}  // namespace fovea::attention::spa
