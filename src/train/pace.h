#pragma once
// How fast a run goes: the clocks behind perf.jsonl and the step line.

#include <chrono>
#include <cstdint>

#include "train/run_config.h"
#include "train/run_log.h"
#include "train/trainer.h"

namespace fovea::train {

class Pace {
 public:
  // `seconds_before`: of training in earlier starts.
  Pace(Trainer& trainer, const RunConfig& config, double seconds_before);

  // Of training so far, over all starts.
  double seconds() const;
  // Means since the last call, evaluations and checkpoints left out.
  PerfRecord record();

  // Time that is no part of a step, from construction to destruction.
  class Event {
   public:
    explicit Event(Pace& pace);
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    double seconds() const;

   private:
    Pace& pace_;
    std::chrono::steady_clock::time_point start_;
  };

 private:
  double eta(double step_seconds) const;

  Trainer& trainer_;
  const RunConfig& config_;
  double seconds_before_, useful_flops_, executed_flops_;
  std::chrono::steady_clock::time_point start_, last_;
  double events_ = 0;  // seconds since last_
  std::int64_t last_step_, last_tokens_;
};

}  // namespace fovea::train
