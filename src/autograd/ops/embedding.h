#pragma once
// Look-ups and positions.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// out[...,:] = table[ids[...],:], plus positions[pos,:] if defined.
//   ids [B,N] i32 in [0, V); table [V,C]; positions_table [P,C] or undefined; positions [B,N] i32
//   or undefined (then 0..N-1). out [B,N,C] in the table's dtype. Gradients are summed in row
//   order.
// Throws ShapeError; an id out of range is an IoError naming its place (CPU).
Var embedding(Ctx& ctx, const Tensor& ids, const Var& table, const Var& positions_table,
              const Tensor& positions);

// Sinusoidal positions, interleaved: pe[p,2t] = sin(p 10000^(-2t/C)), pe[p,2t+1] = cos(same).
// A host-made table [P,C] of f32 or f64, the same bits on every backend. baselines.md 18.1.
Tensor sinusoidal_table(std::int64_t positions, std::int64_t width, DType dtype);

// Rotates pairs of features by angles p * theta_t, theta_t = base^(-2t/width), t < width/2.
struct Rope {
  double base = 10000;
  bool interleaved = false;  // pairs (2t, 2t+1), else (t, t + width/2)
  int width = 0;             // first features of a head that rotate; 0: all; even
};
//   x [B,H,N,D] any strides; positions [B,N] i32 or undefined (then first..first+N-1).
//   out contiguous [B,H,N,D]. Angles in f64 on the host side of the CPU kernel. baselines.md 18.3.
Var rope(Ctx& ctx, const Var& x, const Rope& how, const Tensor& positions, std::int64_t first = 0);

}  // namespace fovea
