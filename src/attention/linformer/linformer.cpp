// Linformer: keys and values compressed to R slots along the token axis. baselines.md 8.

#include "attention/linformer/linformer.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/low_rank.h"
#include "autograd/require.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

std::string linformer_shared_name(std::string_view form) {
  return cat("linformer.", form, ".E");
}

Linformer::Linformer(const AttentionConfig& config, const LinformerSettings& settings,
                     std::string_view form, std::int64_t slots, std::int64_t columns)
    : config_(config), settings_(settings), e_(nullptr), f_(nullptr) {
  const Shape shape = settings.share == LinformerShare::none
                          ? Shape{config.n_kv_head, slots, columns}
                          : Shape{slots, columns};
  const nn::Init init = nn::Init::uniform(1 / std::sqrt(static_cast<double>(slots)));
  if (settings.share == LinformerShare::layer && config.shared != nullptr)
    e_ = &share("E", config.shared->get(linformer_shared_name(form), shape, init, config.layer));
  else
    e_ = &own("E", shape, init);
  const bool two =
      settings.share == LinformerShare::none || settings.share == LinformerShare::headwise;
  if (two) f_ = &own("F", shape, init);
}

AttentionMask Linformer::slot_mask(Ctx& ctx, const AttentionInput& in,
                                   std::string_view part) const {
  AttentionMask mask;
  mask.scale = settings_.scale;
  mask.query_valid = in.query_valid.defined() || config_.cross ? in.query_valid : in.key_valid;
  mask.dropout = config_.dropout;
  mask.dropout_key = ctx.key(cat(path(), ".dropout", part));
  return mask;
}

void Linformer::require_length(std::int64_t tokens) const {
  if (tokens <= settings_.max_len) return;
  throw ShapeError(cat("linformer: ", tokens,
                       " tokens, but its maps have columns for max_len = ", settings_.max_len));
}

namespace {

class Bidirectional final : public Linformer {
 public:
  Bidirectional(const AttentionConfig& config, const LinformerSettings& settings)
      : Linformer(config, settings, config.cross ? "cross" : "self", settings.rank,
                  settings.max_len) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    require_length(in.k.size(2));
    const Var k = compressed(ctx, in.k, e(), in.key_valid),
              v = compressed(ctx, in.v, f(), in.key_valid);
    const AttentionMask mask = slot_mask(ctx, in, "");
    // Random numbers are addressed by sample and token.
    const bool dropping = ctx.training && config().dropout > 0;
    const std::int64_t groups = dropping ? 1 : query_groups(in.q.shape(), settings().rank);
    if (groups > 1) return attend_in_groups(ctx, in.q, k, v, mask, groups);
    const AttentionResult r = flash_attention(ctx, in.q, k, v, Var(), mask);
    return {.o = r.o, .lse = r.lse};
  }

 private:
  // Slots are few, and a block of a GPU sums the gradients of 64 of them over all queries: so long
  // sequences of few heads are cut until there is work for all blocks.
  static std::int64_t query_groups(const Shape& q, std::int64_t slots) {
    constexpr std::int64_t kBlocks = 512, kShortest = 1024, kTile = 64;
    const std::int64_t blocks = q[0] * q[1] * ((slots + kTile - 1) / kTile);
    std::int64_t groups = 1;
    while (blocks * groups < kBlocks && q[2] % (2 * groups) == 0 &&
           q[2] / (2 * groups) >= kShortest)
      groups *= 2;
    return groups;
  }
  AttentionOutput attend_in_groups(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                   AttentionMask mask, std::int64_t groups) const {
    const std::int64_t batch = q.size(0), heads = q.size(1), tokens = q.size(2);
    if (mask.query_valid.defined()) {
      mask.query_valid =
          contiguous(ctx, mask.query_valid).reshape({batch * groups, tokens / groups});
    }
    const AttentionResult r =
        flash_attention(ctx, split_tokens(ctx, q, groups), repeat_samples(ctx, k, groups),
                        repeat_samples(ctx, v, groups), Var(), mask);
    const Var lse =
        permute(ctx, reshape(ctx, r.lse, {batch, groups, heads, tokens / groups}), {0, 2, 1, 3});
    return {.o = join_tokens(ctx, r.o, groups), .lse = reshape(ctx, lse, {batch, heads, tokens})};
  }
  Var compressed(Ctx& ctx, const Var& x, const Var& map, const Tensor& valid) const {
    const Var slots = compress_tokens(ctx, x, map, valid);
    return settings().renormalise ? renormalise_slots(ctx, slots, map, valid, x.size(2)) : slots;
  }
};

}  // namespace

std::unique_ptr<Attention> linformer_bidirectional(const AttentionConfig& config,
                                                   const LinformerSettings& settings) {
  return std::make_unique<Bidirectional>(config, settings);
}

}  // namespace fovea::attention
