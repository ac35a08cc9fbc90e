#pragma once
// Decides what becomes of a step's gradient: finite or not, clipped by how much, at which loss
// scale. Its scalars live on the device and the update kernel reads them there.

#include <cstdint>

#include "autograd/ctx.h"
#include "core/staging.h"
#include "core/tensor.h"
#include "kernels/optim.h"
#include "optim/config.h"

namespace fovea::optim {

struct ScalerConfig {
  double initial_scale = 65536;   // fp16-mixed only; a power of two
  double growth_interval = 2000;  // clean steps after which the scale doubles
  double max_norm = 0;            // 0: no clipping
};

class GradScaler {
 public:
  // Dynamic loss scaling in fp16-mixed; elsewhere the scale stays 1. `elements`: of the flat
  // gradient.
  GradScaler(Ctx& ctx, const ScalerConfig& config, const OptimConfig& optim, std::int64_t elements);

  bool scales() const { return scales_; }
  // Before a step's first backward: its learning rate, and the targets >= 1 of its global batch.
  void stage(Staging& staging, double lr, std::int64_t targets);
  // What backward starts from: scale / targets, [1] of the state dtype, so that summed losses
  // become the mean over the global batch.
  Tensor seed(Ctx& ctx) const;
  // Decides about the reduced flat gradient [elements], with what was staged.
  void decide(Ctx& ctx, const Tensor& gradient);
  // The same where a process has only elements [begin, end) of the reduced gradient: each measures
  // its own, partials() are added over all processes, then all decide alike. The others' partials
  // are zero, so that their sum is exact and the norm has the bits it has in one process. Bounds
  // are multiples of kNormChunk, except at the end; the range may be empty. `gradient` [elements].
  void measure(Ctx& ctx, const Tensor& gradient, std::int64_t begin, std::int64_t end);
  const Tensor& partials() const { return partials_; }  // f64 [ceil(elements / kNormChunk)]
  void decide(Ctx& ctx);
  const Tensor& scalars() const { return scalars_; }  // f64 [kStepScalars], read as StepScalars

  // Reading and restoring all of it; the stream is waited for. On meta nothing was computed: the
  // initial values.
  StepScalars state(Stream& stream) const;
  void restore(Stream& stream, const StepScalars& state);

 private:
  DecideArgs args_;
  bool scales_;
  Tensor scalars_, partials_;
  Tensor mean_;  // 1 / targets, [1] of the state dtype
};

}  // namespace fovea::optim
