#pragma once
// Rotary positions.

#include "kernels/dispatch.h"

namespace fovea {

struct RopeArgs {
  double base = 10000;
  std::int64_t first = 0;    // the position of row 0 where no positions are given
  std::int32_t width = 0;    // leading features that rotate; even, in [0, D]
  bool interleaved = false;  // pairs (2t, 2t+1), else (t, t + width/2)
  bool inverse = false;      // rotate by -p: the derivative
};

// Each pair of out[b,h,n,:] is the pair of x rotated by p theta_t, theta_t = base^(-2t/width); the
// rest is copied. p = positions[b,n] (i32 [B,N]), or first + n if `positions` is empty.
//   x [B,H,N,D] with a contiguous last axis, out [B,H,N,D] contiguous, one float dtype.
// Angles in f64, their sines and cosines rounded to acc. Source: Su et al. 2021; baselines.md 18.3.
FOVEA_KERNEL(rope_forward, StreamRef, const View& out, const View& x, const View& positions,
             const RopeArgs& args)

}  // namespace fovea
