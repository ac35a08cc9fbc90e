#include "attention/exact/exact_method.h"

#include <utility>

#include "attention/exact/decode.h"
#include "core/text.h"

namespace fovea::attention {

ExactMethod::ExactMethod(const AttentionConfig& config, const ExactChoice& choice, Pattern pattern)
    : config_(config), operator_(config, choice, std::move(pattern)) {}

AttentionOutput ExactMethod::forward(Ctx& ctx, const AttentionInput& in) {
  return operator_.forward(ctx, in, cat(path(), ".dropout"));
}

std::unique_ptr<DecodeState> ExactMethod::start(Ctx& ctx, int batch, int max_length) {
  if (!config_.causal || config_.cross) return nullptr;
  return std::make_unique<KeyValueCache>(config_, batch, max_length, ctx.compute(), ctx.device);
}

AttentionOutput ExactMethod::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  const DecodeSet set{in.q, in.k, in.v, &dynamic_cast<KeyValueCache&>(state)};
  return decode_step(ctx, in.key_valid, {&set, 1}, [&](std::span<const DecodePart> parts) {
    AttentionInput all;
    all.q = parts[0].q;
    all.k = parts[0].k;
    all.v = parts[0].v;
    return operator_.forward(ctx, all, cat(path(), ".dropout"));
  });
}

}  // namespace fovea::attention
