#pragma once
// The learning rate of every optimizer step: a pure function of the step's number.

#include <cstdint>
#include <string_view>

#include "optim/config.h"

namespace fovea::optim {

// With t = 1, 2, ... the number of the step, w = warmup_steps, T = decay_steps, r = min_lr_ratio:
//   constant, cosine, linear, wsd   lr t / w while t <= w, then
//     constant                      lr
//     cosine                        from lr to lr r by a half cosine that ends at T, and lr r
//     afterwards linear                        the same by a straight line wsd lr until max_steps -
//     T, then a straight line to lr r at max_steps
//   inverse_sqrt                    lr min(sqrt(w / t), t / w); w = 0 counts as 1
//   inverse_sqrt_literal            lr min(t^-0.5, t w^-1.5)
//   noam                            lr n_embd^-0.5 min(t^-0.5, t w^-1.5)
// T = 0 means max_steps (wsd: a tenth of max_steps). Source: spa.md 2.2; Vaswani et al. 2017, eq. 3
// (noam); Hu et al. 2024, MiniCPM (wsd).
class Schedule {
 public:
  // Throws ConfigError where the settings contradict each other: decay_steps that end before the
  // warmup does, a decay of unknown length, noam without a model width. A max_steps inside the
  // warmup is fine.
  Schedule(double lr, const ScheduleConfig& config, std::int64_t max_steps, int n_embd);

  // `step` counts finished steps, from 0: the rate of step t = step + 1.
  double at(std::int64_t step) const;
  // Whether another max_steps would give other rates: such a run cannot be prolonged.
  static bool depends_on_max_steps(const ScheduleConfig& config);

 private:
  double decayed(double t) const;

  ScheduleKind kind_;
  double lr_, warmup_, decay_begin_ = 0, decay_end_ = 0, min_ratio_, width_factor_ = 1;
};

std::string_view name_of(ScheduleKind kind);

}  // namespace fovea::optim
