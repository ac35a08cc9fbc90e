#include "attention/exact/exact_method.h"

#include <cmath>
#include <limits>
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
  if (!is_causal(config_)) return nullptr;
  return std::make_unique<KeyValueCache>(config_, batch, max_length, ctx.compute(), ctx.device);
}

AttentionOutput ExactMethod::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  return decode_step(ctx, state, in, [&](const AttentionInput& all) { return forward(ctx, all); });
}

Capabilities exact_capabilities(Capabilities caps, const config::Node& options) {
  const ExactChoice choice = exact_choice(options);
  caps.exact = choice.scale == 0 && choice.softcap == 0;
  return caps;
}

Tensor exact_definition(Attention& /*method*/, const AttentionConfig& config,
                        const config::Node& options, const AttentionInput& in) {
  return exact_by_pairs(config, options, in, [](const Pair&) { return true; });
}

Tensor exact_by_pairs(const AttentionConfig& config, const config::Node& options,
                      const AttentionInput& in, const std::function<bool(const Pair&)>& visible) {
  const ExactChoice choice = exact_choice(options);
  const double scale = choice.scale > 0 ? choice.scale : 1 / std::sqrt(double(config.qk_dim));
  return softmax_by_pairs(config, in, [&](const Pair& pair) {
    if (!visible(pair)) return -std::numeric_limits<double>::infinity();
    double score = 0;
    for (int c = 0; c < config.qk_dim; ++c)
      score += scale * pair.q[c] * pair.k[c];
    return choice.softcap > 0 ? choice.softcap * std::tanh(score / choice.softcap) : score;
  });
}

}  // namespace fovea::attention
