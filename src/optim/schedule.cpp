#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/text.h"

namespace fovea::optim {

namespace {

bool decays(ScheduleKind kind) {
  return kind == ScheduleKind::cosine || kind == ScheduleKind::linear || kind == ScheduleKind::wsd;
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::cosine:
      return "cosine";
    case ScheduleKind::linear:
      return "linear";
    case ScheduleKind::wsd:
      return "wsd";
    case ScheduleKind::inverse_sqrt:
      return "inverse_sqrt";
    case ScheduleKind::inverse_sqrt_literal:
      return "inverse_sqrt_literal";
    case ScheduleKind::noam:
      return "noam";
  }
  return "?";
}

bool Schedule::depends_on_max_steps(const ScheduleConfig& config) {
  return config.kind == ScheduleKind::wsd || (decays(config.kind) && config.decay_steps == 0);
}

Schedule::Schedule(double lr, const ScheduleConfig& config, std::int64_t max_steps, int n_embd)
    : kind_(config.kind),
      lr_(lr),
      warmup_(static_cast<double>(config.warmup_steps)),
      min_ratio_(config.min_lr_ratio) {
  if (kind_ == ScheduleKind::noam) {
    if (n_embd <= 0)
      throw ConfigError("sched.kind is noam, but the model has no width (model.n_embd)");
    width_factor_ = 1 / std::sqrt(static_cast<double>(n_embd));
  }
  if (!decays(kind_)) return;
  if (depends_on_max_steps(config) && max_steps <= 0) {
    throw ConfigError(cat("sched.kind is ", name_of(kind_),
                          ", whose length is unknown: set train.max_steps",
                          kind_ == ScheduleKind::wsd ? "" : " or sched.decay_steps"));
  }
  if (kind_ == ScheduleKind::wsd) {
    const std::int64_t length =
        config.decay_steps > 0 ? config.decay_steps : std::max<std::int64_t>(1, max_steps / 10);
    decay_begin_ = static_cast<double>(max_steps - length);
    decay_end_ = static_cast<double>(max_steps);
  } else {
    decay_begin_ = warmup_;
    decay_end_ = static_cast<double>(config.decay_steps > 0 ? config.decay_steps : max_steps);
  }
  if (config.decay_steps > 0 && (decay_begin_ < warmup_ || decay_end_ < decay_begin_)) {
    throw ConfigError(
        cat("sched: ", name_of(kind_), " decays from step ", decay_begin_, " to step ", decay_end_,
            ", but the warmup takes ", config.warmup_steps,
            " steps: shorten sched.warmup_steps or sched.decay_steps, or raise train.max_steps"));
  }
  // A run cut short for a try-out ends in its warmup: no reason to refuse it.
  decay_begin_ = std::max(decay_begin_, warmup_);
  decay_end_ = std::max(decay_end_, decay_begin_);
}

double Schedule::decayed(double t) const {
  if (t <= decay_begin_) return 1;
  if (t >= decay_end_) return min_ratio_;
  const double done = (t - decay_begin_) / (decay_end_ - decay_begin_);
  const double left =
      kind_ == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return min_ratio_ + (1 - min_ratio_) * left;
}

double Schedule::at(std::int64_t step) const {
  const double t = static_cast<double>(step + 1);
  const double w = std::max(warmup_, 1.0);
  switch (kind_) {
    case ScheduleKind::inverse_sqrt:
      return lr_ * std::min(std::sqrt(w / t), t / w);
    case ScheduleKind::inverse_sqrt_literal:
    case ScheduleKind::noam:
      return lr_ * width_factor_ * std::min(1 / std::sqrt(t), t / (w * std::sqrt(w)));
    case ScheduleKind::constant:
    case ScheduleKind::cosine:
    case ScheduleKind::linear:
    case ScheduleKind::wsd:
      break;
  }
  if (t <= warmup_) return lr_ * t / warmup_;
  return decays(kind_) ? lr_ * decayed(t) : lr_;
}

}  // namespace fovea::optim
