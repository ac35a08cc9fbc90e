#pragma once
// Learned masks of a small matrix: S = M z W, with z drawn from logits G. Source: spa.md 1.6.

#include "core/philox.h"
#include "kernels/dispatch.h"

namespace fovea {

// The stretch of hard concrete masks (Louizos et al. 2018).
constexpr double kStretchLow = -0.1, kStretchHigh = 1.1;

struct MaskRule {
  // straight: hard ones forward, the derivative of concrete backward. magnitude: z = 1.
  enum class Kind { concrete, straight, hard_concrete, magnitude };
  Kind kind = Kind::straight;
  // z from the uniform numbers u at the temperature tau; without, what a test uses: 1[G > 0], or
  // the stretched and clipped sigmoid.
  bool sampled = false;
  bool dense = false;  // gradients do not feel M: what is pruned may come back
};

// What S is made of; q = p Q / P is the matrix that S's matrix p comes from.
struct MaskParts {
  View w, g;                                            // [Q,E] of acc
  View shift;                                           // [P] of acc, added to the logits; or empty
  View u;                                               // [Q,E] f32; empty unless sampled
  View tau;                                             // [1] of acc; empty unless sampled
  View m;                                               // [Q,E] u8
  std::int64_t matrices = 1, sources = 1, entries = 0;  // P, Q, E
};

// s[p,e] = m z w, with x = (log u - log(1 - u) + g + shift) / tau, z = sigmoid(x) (concrete),
// 1[x > 0] (straight), or clip(sigmoid(x) stretched, 0, 1). s [P,E] of acc; all contiguous.
FOVEA_KERNEL(learned_mask_forward, StreamRef, const View& s, const MaskParts& parts,
             const MaskRule& rule)

// Gradients, accumulated; an empty one is not wanted.
struct MaskGradients {
  View w, g;   // [Q,E]
  View shift;  // [P]
  View s;      // [Q,E]: ds itself, summed over the matrices of one source
};
FOVEA_KERNEL(learned_mask_backward, StreamRef, const MaskGradients& into, const View& ds,
             const MaskParts& parts, const MaskRule& rule)

// y[p,e] = sigmoid(x[q,e] + shift[p] - per_tau tau), q as above; shift [P] and tau [1] may be
// empty. x [Q,E], y [P,E] of acc, contiguous.
FOVEA_KERNEL(logistic_forward, StreamRef, const View& y, const View& x, const View& shift,
             const View& tau, double per_tau)
// dx[q,e] += the sum over its p of dy y (1 - y), dshift[p] += the sum over e; empty: not wanted.
FOVEA_KERNEL(logistic_backward, StreamRef, const View& dx, const View& dshift, const View& dy,
             const View& y)

// u[i] = the key's uniform number i, at least 1e-6 from 0 and 1; the same bits on every backend.
// u f32, contiguous.
FOVEA_KERNEL(uniform_fill, StreamRef, const View& u, const Key& key)

namespace meta {

inline void count_mask(StreamRef stream, const View& s, const MaskParts& parts) {
  count(stream, s, parts.w, parts.g, parts.u, parts.m);
}
inline void learned_mask_forward(StreamRef stream, const View& s, const MaskParts& parts,
                                 const MaskRule& /*rule*/) {
  count_mask(stream, s, parts);
}
inline void learned_mask_backward(StreamRef stream, const MaskGradients& into, const View& ds,
                                  const MaskParts& parts, const MaskRule& /*rule*/) {
  count_mask(stream, ds, parts);
  count(stream, into.w, into.g, into.s);
}

}  // namespace meta

}  // namespace fovea
