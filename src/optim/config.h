#pragma once
// Optimizer and schedule settings; filled and range-checked by train/run_config.cpp.

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::optim {

// A group of parameters, and what multiplies its learning rate.
struct LrScale {
  std::string glob;  // of paths (core/glob.h)
  double factor = 1;
  bool operator==(const LrScale&) const = default;
};

struct OptimConfig {
  std::string kind = "adamw";
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // Globs of parameter paths, besides the default (fewer than 2 dimensions).
  std::vector<std::string> no_decay;
  std::vector<LrScale> lr_scale;
};

enum class ScheduleKind { constant, cosine, linear, wsd, inverse_sqrt, inverse_sqrt_literal, noam };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  // cosine, linear: the step at which decay ends, 0: train.max_steps. wsd: length of the decay, 0:
  // a tenth of train.max_steps.
  std::int64_t decay_steps = 0;
  double min_lr_ratio = 0.1;  // cosine, linear, wsd
};

}  // namespace fovea::optim
