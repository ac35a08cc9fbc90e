#pragma once
// A table of rows, looked up by id.

#include <memory>

#include "nn/module.h"

namespace fovea::nn {

// `weight` [rows, width], normal with standard deviation `init_std`.
class Embedding final : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, double init_std);

  // weight[ids] + position_table[positions]: ids [B,N] i32, position_table [P,width] or undefined,
  // positions [B,N] i32 or undefined (then 0..N-1); out [B,N,width]. Throws as the op embedding.
  Var forward(Ctx& ctx, const Tensor& ids, const Var& position_table, const Tensor& positions);
  Parameter& weight() { return weight_; }
  // For a head tied to this table.
  std::shared_ptr<Parameter> shared_weight() const { return handle("weight"); }

 private:
  Parameter& weight_;
};

}  // namespace fovea::nn
