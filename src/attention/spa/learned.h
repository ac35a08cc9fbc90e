#pragma once
// A learned S: its mask, its schedules, its pruning. Source: spa.md 1.6.

#include <optional>
#include <string>

#include "attention/spa/health.h"
#include "autograd/ops/learned_mask.h"

namespace fovea::attention::spa {

// What belongs to the method, by its names: W, G, b, M and u. Pointers may be null.
struct LearnedParts {
  nn::Parameter& w;
  nn::Parameter& g;
  nn::Parameter* shift = nullptr;  // b [Hk]: masks of their own for each key/value head
  nn::Parameter* whole = nullptr;  // a tally of dS, for regrow: grad
  Tensor* m = nullptr;             // u8
  Tensor* u = nullptr;             // f32; null where no mask is drawn
};

class LearnedMatrix {
 public:
  LearnedMatrix(const Settings& settings, const LearnedParts& parts)
      : settings_(settings), parts_(parts) {}

  // S [P,in,out] of acc: masks of this step while training, else the deterministic ones.
  Var matrix(Ctx& ctx);
  // lambda0 times the expected number of entries, if there is such a penalty.
  void penalty(Ctx& ctx, std::vector<Var>& into);
  // Draws u and sets the temperature. `path` is the method's.
  void before_step(Ctx& ctx, const nn::Clock& clock, const std::string& path);
  // Prunes and regrows where due, then looks how S fares.
  void after_step(Ctx& ctx, const nn::Clock& clock, const std::string& path);
  // Of this clock's after_step; nothing if S was not looked at.
  void measure(const nn::Clock& clock, const std::string& path,
               std::vector<nn::Measure>& into) const;

 private:
  const LearnChoice& learn() const { return settings_.learn; }
  Var three(Ctx& ctx, const nn::Parameter& parameter) const;  // [Q,in,out]
  const Tensor& tau(Ctx& ctx);
  LearnedState state_of(Ctx& ctx, const nn::Clock& clock) const;
  void prune(Ctx& ctx, const nn::Clock& clock, const std::string& path, LearnedState& state);
  double target_density(const nn::Clock& clock) const;

  Settings settings_;
  LearnedParts parts_;
  Tensor tau_;  // [1] of acc on the device, so that a captured step reads the newest
  std::optional<Health> health_;
  std::int64_t looked_at_ = -1;
  Watch watch_;
  bool warned_ = false;
};

}  // namespace fovea::attention::spa
