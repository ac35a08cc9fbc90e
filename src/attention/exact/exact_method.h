#pragma once
// A whole method that is one exact operator: it attends, and decodes from all keys and values.

#include "attention/exact/exact_operator.h"

namespace fovea::attention {

class ExactMethod final : public Attention {
 public:
  ExactMethod(const AttentionConfig& config, const ExactChoice& choice, Pattern pattern = {},
              SlotOrders orders = {});

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override;
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override;
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override;
  std::string kernel() const override { return operator_.kernel(); }
  std::string refused() const override { return operator_.refused(); }

 private:
  AttentionConfig config_;
  ExactOperator operator_;
};

}  // namespace fovea::attention
