#include "attention/exact/exact_operator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/alibi.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

double score_scale(const AttentionConfig& config, const config::Node& options) {
  if (options.find("scale") != nullptr) return options.get_number("scale");
  return 1 / std::sqrt(static_cast<double>(config.qk_dim));
}

ExactChoice exact_choice(const config::Node& options) {
  const std::string kernel = options.get_string("kernel");
  return {.materialised = kernel.starts_with("materialised"),
          .strict = kernel.ends_with('!'),
          .scale = options.find("scale") != nullptr ? options.get_number("scale") : 0,
          .softcap = options.find("softcap") != nullptr ? options.get_number("softcap") : 0};
}

ExactOperator::ExactOperator(const AttentionConfig& config, const ExactChoice& choice,
                             Pattern pattern, SlotOrders orders)
    : config_(config), choice_(choice), pattern_(std::move(pattern)), orders_(std::move(orders)) {}

bool ExactOperator::too_wide_for_a_gpu() const {
  return std::max(config_.qk_dim, config_.v_dim) > kWidestTiledOnCuda;
}

std::string ExactOperator::refused() const {
  if (pattern_ || choice_.materialised || choice_.strict || !too_wide_for_a_gpu()) return {};
  return cat("on a GPU materialised: its tiled kernels end at heads of width ", kWidestTiledOnCuda);
}

const Tensor& ExactOperator::slopes(Ctx& ctx, DType dtype) {
  if (!slopes_.defined() || slopes_.dtype() != dtype || !(slopes_.device() == ctx.device)) {
    slopes_ = Tensor::from(alibi_slopes(config_.n_head), {config_.n_head}, dtype)
                  .to(ctx.device, ctx.stream);
  }
  return slopes_;
}

AttentionOutput ExactOperator::forward(Ctx& ctx, const AttentionInput& in, std::string_view dropout,
                                       std::shared_ptr<const AttentionPlan> plan) {
  AttentionMask mask;
  mask.scale = choice_.scale;
  mask.softcap = choice_.softcap;
  mask.causal = is_causal(config_);
  mask.key_valid = in.key_valid;
  mask.query_valid = in.query_valid;
  mask.query_segments = in.segments;
  mask.key_segments = in.key_segments;
  mask.dropout = config_.dropout;
  mask.dropout_key = ctx.key(dropout);
  if (config_.position == Position::alibi) mask.alibi_slopes = slopes(ctx, acc_of(in.q.dtype()));
  const bool wide_on_gpu = ctx.device.acts_as_cuda() && too_wide_for_a_gpu();
  mask.plan = std::move(plan);
  if (pattern_ && mask.plan == nullptr) {
    if (wide_on_gpu) {
      throw ConfigError(cat("model.attention: on a GPU a pattern's tiles end at heads of width ",
                            kWidestTiledOnCuda, ", but these have ",
                            std::max(config_.qk_dim, config_.v_dim)));
    }
    const PlanShape shape{1, in.q.size(1), in.k.size(1), in.q.size(2), in.k.size(2), mask.causal};
    mask.plan = plans_.get(ctx, shape, pattern_, orders_);
  }
  const bool tiled = !choice_.materialised && (choice_.strict || pattern_ || !wide_on_gpu);
  const AttentionResult r = tiled ? flash_attention(ctx, in.q, in.k, in.v, in.bias, mask)
                                  : reference_attention(ctx, in.q, in.k, in.v, in.bias, mask);
  return {.o = r.o, .lse = r.lse};
}

}  // namespace fovea::attention
