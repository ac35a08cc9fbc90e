// causal_mode: block. Complete blocks of c tokens are compressed to slots; a query sees the slots
// of the blocks before its own window, and its window exactly. baselines.md 8.3.

#include <algorithm>

#include "attention/linformer/decode.h"
#include "attention/linformer/linformer.h"
#include "autograd/ops/low_rank.h"
#include "kernels/basic.h"
#include "kernels/low_rank.h"

namespace fovea::attention {

namespace {

void copy_tokens(Ctx& ctx, const Tensor& to, const Tensor& from) {
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), from.view()));
}

class Block final : public Linformer {
 public:
  Block(const AttentionConfig& config, const LinformerSettings& settings)
      : Linformer(config, settings, "block", settings.block_rank, settings.block) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override;
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override;
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override;

 private:
  // The parts of a state: slots of every complete block, and the raw tokens of the window.
  static constexpr std::size_t kKeySlots = 0, kValueSlots = 1, kKeys = 2, kValues = 3;

  AttentionResult local(Ctx& ctx, const AttentionInput& in, bool all_seen);
  AttentionResult slots(Ctx& ctx, const AttentionInput& in);
  void advance(Ctx& ctx, LinformerState& state, LinformerState::Group group) const;
  // Slots that a query of the block `own` sees.
  std::int64_t slots_before(std::int64_t own) const {
    return std::max<std::int64_t>(0, own - settings().window_blocks) * settings().block_rank;
  }

  PlanCache windows_, stairs_;
};

AttentionOutput Block::forward(Ctx& ctx, const AttentionInput& in) {
  require_length(in.q.size(2));
  const bool all_seen = slots_before((in.q.size(2) - 1) / settings().block) == 0;
  const AttentionResult exact = local(ctx, in, all_seen);
  if (all_seen) return {.o = exact.o, .lse = exact.lse};
  const AttentionResult r = merge_attention(ctx, {slots(ctx, in), exact});
  return {.o = r.o, .lse = r.lse};
}

AttentionResult Block::local(Ctx& ctx, const AttentionInput& in, bool all_seen) {
  AttentionMask mask = slot_mask(ctx, in, ".window");
  mask.causal = true;
  mask.key_valid = in.key_valid;
  if (!all_seen) {
    const PlanShape shape{in.q.size(0), in.q.size(1), in.k.size(1),
                          in.q.size(2), in.k.size(2), true};
    mask.plan = windows_.get(ctx, shape, [&](const PlanShape&) {
      PlanRule rule;
      rule.rule.block = static_cast<std::int32_t>(settings().block);
      rule.rule.block_left = static_cast<std::int32_t>(settings().window_blocks);
      return std::vector{rule};
    });
  }
  return flash_attention(ctx, in.q, in.k, in.v, Var(), mask);
}

AttentionResult Block::slots(Ctx& ctx, const AttentionInput& in) {
  const Var k = compress_blocks(ctx, in.k, e(), in.key_valid),
            v = compress_blocks(ctx, in.v, f(), in.key_valid);
  AttentionMask mask = slot_mask(ctx, in, ".slots");
  if (in.key_valid.defined()) {
    mask.key_valid = ctx.empty({k.size(0), k.size(2)}, DType::u8, "linformer");
    FOVEA_ON(ctx.device, any_valid(ctx.stream.ref(), mask.key_valid.view(), in.key_valid.view(),
                                   settings().block, settings().block_rank));
  }
  const PlanShape shape{in.q.size(0), in.q.size(1), k.size(1), in.q.size(2), k.size(2), false};
  mask.plan = stairs_.get(ctx, shape, [&](const PlanShape&) {
    PlanRule rule;
    rule.rule.stair_width = static_cast<std::int32_t>(settings().block_rank);
    rule.rule.stair_block = static_cast<std::int32_t>(settings().block);
    rule.rule.stair_lag = static_cast<std::int32_t>(settings().window_blocks);
    return std::vector{rule};
  });
  return flash_attention(ctx, in.q, k, v, Var(), mask);
}

std::unique_ptr<DecodeState> Block::start(Ctx& ctx, int batch, int max_length) {
  const std::int64_t slot_count = max_length / settings().block * settings().block_rank;
  const std::int64_t window = (settings().window_blocks + 1) * settings().block;
  const auto room = [&](std::int64_t tokens, std::int64_t width) {
    return Tensor::empty({batch, config().n_kv_head, tokens, width}, ctx.compute(), ctx.device,
                         "decode_cache");
  };
  return std::make_unique<LinformerState>(
      std::vector{room(slot_count, config().qk_dim), room(slot_count, config().v_dim),
                  room(window, config().qk_dim), room(window, config().v_dim)},
      max_length);
}

AttentionOutput Block::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  auto& own = dynamic_cast<LinformerState&>(state);
  return own.step(ctx, in, config(),
                  [&](const LinformerState::Group& group) { advance(ctx, own, group); });
}

// Tokens go in up to the end of their block, which then is compressed.
void Block::advance(Ctx& ctx, LinformerState& state, LinformerState::Group group) const {
  const std::int64_t c = settings().block, rank = settings().block_rank,
                     lag = settings().window_blocks;
  const auto part = [&](std::size_t which) { return state.part(which, group.begin, group.end); };
  const Tensor keys = part(kKeys), values = part(kValues);
  std::int64_t length = group.length, from = 0;
  const std::int64_t count = group.q.size(2);
  while (from < count) {
    const std::int64_t own = length / c, held = length - std::max<std::int64_t>(0, own - lag) * c,
                       taken = std::min(count - from, c - length % c), end = held + taken;
    const auto piece = [&](const Tensor& x) { return x.slice(2, from, from + taken); };
    copy_tokens(ctx, keys.slice(2, held, end), piece(group.k));
    copy_tokens(ctx, values.slice(2, held, end), piece(group.v));
    AttentionMask mask;
    mask.scale = settings().scale;
    const Var q(piece(group.q));
    const auto attended = [&](const Tensor& k, const Tensor& v, std::int64_t n) {
      return flash_attention(ctx, q, Var(k.slice(2, 0, n)), Var(v.slice(2, 0, n)), Var(), mask);
    };
    std::vector<AttentionResult> parts;
    if (const std::int64_t seen = slots_before(own); seen > 0)
      parts.push_back(attended(part(kKeySlots), part(kValueSlots), seen));
    mask.causal = true;
    parts.push_back(attended(keys, values, end));
    const AttentionResult r = parts.size() == 1 ? parts[0] : merge_attention(ctx, parts);
    copy_tokens(ctx, piece(group.o), r.o.value());
    length += taken;
    from += taken;
    if (length % c != 0) continue;
    const auto close = [&](const Tensor& tokens, std::size_t slots_of, const Var& map) {
      const Var slots = compress_blocks(ctx, Var(tokens.slice(2, end - c, end)), map, {});
      copy_tokens(ctx, part(slots_of).slice(2, own * rank, (own + 1) * rank), slots.value());
      if (end == (lag + 1) * c && lag > 0) {  // the window moves on; a copy, for it overlaps itself
        const Tensor kept = ctx.empty(tokens.slice(2, c, end).shape(), tokens.dtype(), "decode");
        copy_tokens(ctx, kept, tokens.slice(2, c, end));
        copy_tokens(ctx, tokens.slice(2, 0, end - c), kept);
      }
    };
    close(keys, kKeySlots, e());
    close(values, kValueSlots, f());
  }
}

}  // namespace

std::unique_ptr<Attention> linformer_block(const AttentionConfig& config,
                                           const LinformerSettings& settings) {
  return std::make_unique<Block>(config, settings);
}

BlockPairs linformer_block_pairs(const LinformerSettings& settings, std::int64_t tokens) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t c = settings.block, lag = settings.window_blocks;
  const auto window_start = [&](std::int64_t i) {
    return std::max<std::int64_t>(0, i / c - lag) * c;
  };
  const auto slots_of = [&](std::int64_t i) {
    return std::max<std::int64_t>(0, i / c - lag) * settings.block_rank;
  };
  const auto tiles = [](std::int64_t from, std::int64_t to) {
    const std::int64_t first = from / kTile, last = (to + kTile - 1) / kTile;
    return static_cast<double>((last - first) * kTile);
  };
  BlockPairs out;
  for (std::int64_t i = 0; i < tokens; ++i) {
    out.local += static_cast<double>(i + 1 - window_start(i));
    out.slots += static_cast<double>(slots_of(i));
    const std::int64_t first = i / kTile * kTile, last = std::min(first + kTile, tokens) - 1;
    out.tiled_local += tiles(window_start(first), last + 1);
    out.tiled_slots += tiles(0, slots_of(last));
  }
  return out;
}

}  // namespace fovea::attention
