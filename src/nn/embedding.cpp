#include "nn/embedding.h"

#include "autograd/ops/embedding.h"

namespace fovea::nn {

Embedding::Embedding(std::int64_t rows, std::int64_t width, double init_std)
    : weight_(own("weight", {rows, width}, Init::normal(init_std))) {}

Var Embedding::forward(Ctx& ctx, const Tensor& ids, const Var& position_table,
                       const Tensor& positions) {
  return embedding(ctx, ids, weight_.var(), position_table, positions);
}

}  // namespace fovea::nn
