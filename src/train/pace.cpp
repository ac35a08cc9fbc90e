#include "train/pace.h"

#include <algorithm>
#include <utility>

namespace fovea::train {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Pace::Event::Event(Pace& pace) : pace_(pace), start_(Clock::now()) {}

Pace::Event::~Event() {
  pace_.events_ += seconds();
}

double Pace::Event::seconds() const {
  return since(start_);
}

Pace::Pace(Trainer& trainer, const RunConfig& config, double seconds_before)
    : trainer_(trainer),
      config_(config),
      seconds_before_(seconds_before),
      useful_flops_(trainer.task().step_flops(false)),
      executed_flops_(trainer.task().step_flops(true)),
      start_(Clock::now()),
      last_(start_),
      last_step_(trainer.clock().step),
      last_tokens_(0) {}

double Pace::seconds() const {
  return seconds_before_ + since(start_);
}

PerfRecord Pace::record() {
  const double elapsed = std::max(since(last_) - std::exchange(events_, 0.0), 1e-9);
  last_ = Clock::now();
  const std::int64_t step = trainer_.clock().step, tokens = trainer_.feed().tokens();
  const auto steps =
      static_cast<double>(std::max<std::int64_t>(1, step - std::exchange(last_step_, step)));
  const MemoryUse memory = trainer_.memory();
  PerfRecord out;
  out.seconds = seconds();
  out.step_seconds = elapsed / steps;
  out.tokens_per_second =
      static_cast<double>(tokens - std::exchange(last_tokens_, tokens)) / elapsed;
  out.data_fraction = trainer_.feed().take_seconds() / elapsed;
  out.peak_bytes = static_cast<double>(memory.total());
  out.persistent_bytes = static_cast<double>(memory.persistent);
  out.activation_bytes = static_cast<double>(memory.activations);
  out.flops = useful_flops_;
  out.executed_flops = executed_flops_;
  out.eta_seconds = eta(out.step_seconds);
  return out;
}

// Whatever ends the run first; negative if nothing is known to.
double Pace::eta(double step_seconds) const {
  double out = -1;
  const nn::Clock& clock = trainer_.clock();
  if (clock.max_steps > 0) out = step_seconds * static_cast<double>(clock.max_steps - clock.step);
  const double limit = config_.train.max_seconds;
  if (limit > 0 && (out < 0 || limit - seconds() < out)) out = std::max(0.0, limit - seconds());
  return out;
}

}  // namespace fovea::train
