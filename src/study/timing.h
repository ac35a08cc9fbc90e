#pragma once
// Time of work on a stream, hot.

#include <cstdint>
#include <functional>
#include <vector>

#include "core/stream.h"

namespace fovea::study {

struct Timing {
  double ms = 0;             // the median over groups, per piece of work
  std::int64_t pieces = 0;   // timed
  std::int64_t warm_up = 0;  // not timed
};

struct TimingPlan {
  double warm_seconds = 0.3;                   // at least so long before anything is timed
  double seconds = 0.3;                        // timed, at least
  std::int64_t warm_least = 1;                 // pieces of warm-up, at least
  double group_seconds = 0.03;                 // of a group of pieces that is timed as one
  std::function<void()> before_end = nullptr;  // called while the last group may still run
};

// Repeats `work`, which enqueues one piece. On a GPU by events, elsewhere by the clock.
Timing time_on(Stream& stream, const std::function<void()>& work, const TimingPlan& plan = {});

// The same of `work` alone, before each of which `prepare` enqueues what is not timed: pieces, that
// are groups of their own.
Timing time_after(Stream& stream, const std::function<void()>& prepare,
                  const std::function<void()>& work, const TimingPlan& plan = {});

double median(std::vector<double> values);  // of at least one

}  // namespace fovea::study
