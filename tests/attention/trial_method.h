#pragma once
// A trial's method outside the contract's checks.

#include "attention/contract/trial.h"
#include "attention/standalone.h"

namespace fovea::test {

// The method, with a context of its own on the CPU to call it in.
struct TrialMethod {
  explicit TrialMethod(const attention::contract::Trial& trial,
                       Precision precision = Precision::fp64)
      : alone(*trial.spec, trial.config(), trial.options, precision, kCpu) {
    ctx.precision = precision;
    ctx.seed = 1;
  }
  attention::Attention& method() { return alone.method(); }

  attention::Standalone alone;
  Stream stream{kCpu};
  CachingAllocator memory{memory_source(kCpu)};
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
};

// A trial's outcome in f64.
inline attention::contract::Outcome run64(const attention::contract::Trial& trial,
                                          const attention::contract::Tokens& tokens) {
  return attention::contract::run(trial, tokens, {.precision = Precision::fp64});
}

}  // namespace fovea::test
