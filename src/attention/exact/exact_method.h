#pragma once
// A whole method that is one exact operator: it attends, and decodes from all keys and values.

#include <functional>

#include "attention/definition.h"
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

// AttentionSpec::caps_with and definition of methods that are nothing but this: exact unless their
// scores are scaled otherwise or capped.
Capabilities exact_capabilities(Capabilities caps, const config::Node& options);
Tensor exact_definition(Attention& method, const AttentionConfig& config,
                        const config::Node& options, const AttentionInput& in);
// The definition over those pairs that `visible` shows, of methods that are this under a pattern.
Tensor exact_by_pairs(const AttentionConfig& config, const config::Node& options,
                      const AttentionInput& in, const std::function<bool(const Pair&)>& visible);

}  // namespace fovea::attention
