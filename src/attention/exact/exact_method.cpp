#include "attention/exact/exact_method.h"

#include <utility>

#include "attention/exact/decode.h"
#include "core/text.h"

namespace fovea::attention {

ExactMethod::ExactMethod(const AttentionConfig& config, const ExactChoice& choice, Pattern pattern,
                         SlotOrders orders)
    : config_(config), operator_(config, choice, std::move(pattern), std::move(orders)) {}

AttentionOutput ExactMethod::forward(Ctx& ctx, const AttentionInput& in) {
  return operator_.forward(ctx, in, cat(path(), ".dropout"));
}

std::unique_ptr<DecodeState> ExactMethod::start(Ctx& ctx, int batch, int max_length) {
  if (!config_.causal || config_.cross) return nullptr;
  return std::make_unique<KeyValueCache>(config_, batch, max_length, ctx.compute(), ctx.device);
}

AttentionOutput ExactMethod::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  return decode_step(ctx, state, in, [&](const AttentionInput& all) { return forward(ctx, all); });
}

}  // namespace fovea::attention
