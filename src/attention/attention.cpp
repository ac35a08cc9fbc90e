#include "attention/attention.h"

#include "core/error.h"

namespace fovea::attention {

FeatureMatrices Attention::map_matrices(Ctx& /*ctx*/) {
  FOVEA_ASSERT(!"map_matrices() without a qk_map()");
}

std::unique_ptr<DecodeState> Attention::start(Ctx& /*ctx*/, int /*batch*/, int /*max_length*/) {
  return nullptr;
}

AttentionOutput Attention::step(Ctx& /*ctx*/, DecodeState& /*state*/,
                                const AttentionInput& /*in*/) {
  FOVEA_ASSERT(!"step() without a state: start() gave none");
}

}  // namespace fovea::attention
