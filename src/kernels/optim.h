#pragma once
// The optimizer's arithmetic over flat buffers. No value returns to the host: kernels talk through
// StepScalars in device memory.

#include "kernels/dispatch.h"

namespace fovea {

// What an update knows and remembers; an f64 tensor [kStepScalars] in device memory, read as this
// struct.
struct StepScalars {
  double lr = 0;                // staged by the host before the update
  double scale = 1;             // of the loss; at least 1
  double good_steps = 0;        // finite steps since the scale last changed
  double adam_count = 0;        // updates made
  double skipped_in_a_row = 0;  // steps skipped since the last update
  double skipped = 0;           // steps skipped in all
  // Decided anew each step:
  double finite = 1;       // 0: the step is skipped
  double norm = 0;         // of the gradient, without the scale, before clipping
  double multiplier = 1;   // of the gradient: clipping / scale
  double correction1 = 1;  // 1 - beta1^adam_count
  double correction2 = 1;  // 1 - beta2^adam_count
};
constexpr std::int64_t kStepScalars = 11;
static_assert(sizeof(StepScalars) == kStepScalars * sizeof(double));

struct AdamWArgs {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
};

struct DecideArgs {
  double max_norm = 0;         // the gradient is scaled down to it; 0: no clipping
  double growth_interval = 0;  // finite steps after which the scale doubles; 0: never
  double beta1 = 0.9, beta2 = 0.95;
};

constexpr std::int64_t kNormChunk = 65536;
constexpr std::int64_t kDecayBlock = 64;

// partials[i] = the sum of squares of elements [65,536 i, 65,536 (i+1)) of x, in f64 in a fixed
// order.
//   x [n] any float dtype; partials f64 [ceil(n / 65,536)], assigned.
FOVEA_KERNEL(squared_norm, StreamRef, const View& partials, const View& x)

// Adds the partials in their order and decides. A norm that is not finite skips the step: the scale
// halves (not below 1) and Adam's count stands still. Else Adam's count advances, and the scale
// doubles after growth_interval such steps in a row (not above 2^24, where f16 gradients have long
// overflowed).
//   multiplier = min(1, max_norm / norm) / scale, with the scale the gradients were made with.
FOVEA_KERNEL(scaler_decide, StreamRef, const View& scalars, const View& partials,
             const DecideArgs& args)

// One AdamW step, after scaler_decide; nothing changes if scalars.finite is 0.
//   g = multiplier gradient; m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2;
//   r = lr_blocks[i / 64] lr, the rate of the element's block;
//   w <- w (1 - r wd) where decay_blocks[i / 64] is not 0; w <- w - r m^ / (sqrt(v^) + eps).
//   master, first, second, gradient [n] all f32 or all f64; compute [n] any float dtype, the
//   rounded master, written in the same pass unless it is the same memory or empty; decay_blocks u8
//   [ceil(n/64)]; lr_blocks f32 [ceil(n/64)], or empty: factors of 1, with the same bits.
// Source: Loshchilov and Hutter 2019.
FOVEA_KERNEL(adamw_step, StreamRef, const View& master, const View& compute, const View& first,
             const View& second, const View& gradient, const View& decay_blocks,
             const View& lr_blocks, const View& scalars, const AdamWArgs& args)

}  // namespace fovea
