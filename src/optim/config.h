#pragma once
// Optimizer and schedule settings; filled and range-checked by train/run_config.cpp.

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::optim {

struct OptimConfig {
  std::string kind = "adamw";
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> no_decay;  // globs of parameter paths, on top of the default (fewer than 2 dimensions)
};

enum class ScheduleKind { constant, cosine, linear, wsd, inverse_sqrt, inverse_sqrt_literal, noam };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;   // the step at which decay ends; 0: train.max_steps. wsd: length of the decay
  double min_lr_ratio = 0.1;      // cosine, linear, wsd
};

}  // namespace fovea::optim
