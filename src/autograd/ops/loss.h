#pragma once
// Losses: sums, with counts kept by the caller.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

struct CrossEntropy {
  Var sum;         // [] of acc(x): the summed negative log-likelihood in nats over targets >= 0
  Tensor per_row;  // [rows] of acc(x): each row's own loss, 0 where ignored
  // [rows] u8: the largest logit is the target's (lowest index wins ties), 0 where ignored.
  // linear_cross_entropy leaves it undefined where it makes gradients: a training step spares it.
  Tensor correct;
};

struct HeadOptions {
  std::int64_t chunk_rows = 0;  // rows whose logits exist at once; 0: 4,096, on a GPU 16,384
  // More rows of w's memory, all zero, that products may read (Parameter::padded_rows); 0: none.
  std::int64_t padded_rows = 0;
};

// Softmax cross-entropy of the logits x w^T, never storing them whole: rows are processed in
// chunks, and the gradient is made in the same pass when the tape records. Logits are kept in
// acc(x) on the CPU, in x's dtype on a GPU.
//   x [..., C], w [V, C] (no bias), targets [...] i32 with -1 = ignored; rows = product of the
//   leading axes. Ignored rows cost nothing and receive zero gradient.
// The composition: cross_entropy(linear(x, w), targets). Throws ShapeError.
CrossEntropy linear_cross_entropy(Ctx& ctx, const Var& x, const Var& w, const Tensor& targets,
                                  const HeadOptions& options = {});

// The same from logits [..., V] held whole (tests, classifiers). Throws ShapeError.
CrossEntropy cross_entropy(Ctx& ctx, const Var& logits, const Tensor& targets);

}  // namespace fovea
