#include "autograd/op_registry.h"

#include <algorithm>

namespace fovea {

// Each family's list, beside its ops: src/autograd/ops/<family>_cases.cpp.
OpList activation_ops();
OpList attention_ops();
OpList elementwise_ops();
OpList embedding_ops();
OpList feature_map_ops();
OpList feature_projection_ops();
OpList landmark_ops();
OpList learned_mask_ops();
OpList linear_attention_ops();
OpList linear_ops();
OpList loss_ops();
OpList low_rank_ops();
OpList lsh_ops();
OpList move_tokens_ops();
OpList norm_ops();
OpList pool_ops();
OpList select_ops();
OpList sparse_ops();

namespace {

OpList all_ops() {
  OpList out;
  for (const auto family : {activation_ops, attention_ops, elementwise_ops, embedding_ops,
                            feature_map_ops, feature_projection_ops, landmark_ops, learned_mask_ops,
                            linear_attention_ops, linear_ops, loss_ops, low_rank_ops, lsh_ops,
                            move_tokens_ops, norm_ops, pool_ops, select_ops, sparse_ops}) {
    for (OpSpec& spec : family())
      out.push_back(spec);
  }
  std::sort(out.begin(), out.end(),
            [](const OpSpec& a, const OpSpec& b) { return a.name < b.name; });
  return out;
}

}  // namespace

const std::vector<OpSpec>& op_specs() {
  static const std::vector<OpSpec> specs = all_ops();
  return specs;
}

}  // namespace fovea
