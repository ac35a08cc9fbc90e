#pragma once
// From S and the gates of heads to the matrices that queries and keys meet. Source: spa.md 1.7.

#include "attention/spa/settings.h"

namespace fovea::attention::spa {

// g_h = 2 sigmoid(theta_h) [H] of acc.
Var gates_of(Ctx& ctx, const Var& theta);

// What queries and keys are multiplied by, [G,in,out] of acc each.
//   s [G,in,out]; theta [H], read for the gates score, proj and blend. Those stand on the side of
//   the queries alone, which changes no score: g_h for score, g_h^2 for proj; blend puts dense
//   features beside S: [g_h S | (1 - g_h) I / (alpha sqrt(d_k))] over [S | I].
//   head_scales [H], or undefined: settings.head_scales; on the side of the queries too.
FeatureMatrices feature_matrices(Ctx& ctx, const Settings& settings, const Var& s, const Var& theta,
                                 const Tensor& head_scales);

}  // namespace fovea::attention::spa
