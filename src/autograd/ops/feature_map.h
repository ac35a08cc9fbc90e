#pragma once
// Feature maps of kernel attention, differentiable.

#include "autograd/ctx.h"
#include "autograd/var.h"
#include "kernels/feature_map.h"

namespace fovea {

// A map and its fixed numbers; see kernels/feature_map.h for what they mean. Tensors may be
// undefined.
struct Features {
  FeatureKind kind = FeatureKind::elu;
  Stabiliser stabiliser = Stabiliser::none;
  double scale = 1, eps = 0, offset = 0, reference = 1, temperature = 1;
  Tensor w = {};          // f32 [R,D] or [G,R,D]
  Var sigma = {};         // [H,D]: fourier, which then makes features for H heads
  Tensor entries = {};    // i32 [H]
  Tensor positions = {};  // i32 [B,N]

  bool exponential() const {
    return kind == FeatureKind::softmax || kind == FeatureKind::softmax_pair;
  }
};

struct MappedFeatures {
  Var y;            // [B,H,N,m]
  Tensor exponent;  // acc [B,H,N]: rows were divided by 2 to this; exponential maps only
};

// phi of every row. x [B,Hx,N,D] of any strides; valid u8 [B,N], segments i32 [B,N] or undefined.
// The stabilisers are constants of the backward pass. Throws ShapeError.
MappedFeatures map_features(Ctx& ctx, const Var& x, const Features& how, const Tensor& valid = {},
                            const Tensor& segments = {});

// Rows of one call as an op that maps them itself keeps them: what it was given, and what the
// forward pass subtracted from exponents.
class FeatureRows {
 public:
  // Checks x against the map. Throws ShapeError. `op` is a static string.
  FeatureRows(Ctx& ctx, const char* op, const Var& x, const Features& how, Tensor valid,
              Tensor segments);
  // y as x, and the exponent where `exponent` is not null. `again`: for a backward pass.
  Tensor map(Ctx& ctx, const Features& how, Tensor* exponent, bool again);
  // Gives x's gradient to `to`, and sigma's, of dy [B,H,N,m].
  void give_gradients(Ctx& ctx, const GradRef& to, const Features& how, const Tensor& dy) const;

 private:
  FeatureMap kernel_map(const Features& how) const;

  const char* op_;
  Tensor x_, valid_, segments_;
  Tensor shift_;   // acc [B,H,N]; exponential maps only
  Tensor shared_;  // the same: what FeatureMap::shared is for; only where a tape keeps it
};

}  // namespace fovea
