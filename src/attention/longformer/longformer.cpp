// Longformer: windows, and global tokens with projections of their own. baselines.md 6.

#include <algorithm>
#include <optional>

#include "attention/exact/cost.h"
#include "attention/exact/decode.h"
#include "attention/exact/exact_method.h"
#include "attention/longformer/masked_plans.h"
#include "attention/registry.h"
#include "autograd/ops/select.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"window", config::Type::any, "512", "even, or a list with one a layer",
     "Two-sided width of the window; a causal one has as many keys, all of them before the token."},
    {"dilation", config::Type::any, "1",
     "an integer, a list with one a head, or a list of these with one a layer",
     "Steps between the keys of a window."},
    {"global_tokens", config::Type::numbers, "[]", "[0, inf)",
     "Positions that see all and are seen by all, through a second set of projections."},
    kTiledKernelOption,
    kScaleOption,
};

constexpr Capabilities kCapabilities{
    .causal = true,
    .bidirectional = true,
    .padding = true,
    .segments = true,
    .bias = true,
    .dropout = true,
    .decode = true,
    .anchored = true,
    .any_width = false,
    .note = "its pattern relates the positions of one sequence",
};

bool has_globals(const AttentionConfig& config, const config::Node& options) {
  return config.global_mask || !options.find("global_tokens")->items().empty();
}

// The past of both sets of projections.
class LongformerState final : public DecodeState {
 public:
  LongformerState(const AttentionConfig& config, bool with_globals, const Ctx& ctx, int batch,
                  int max_length)
      : local_(config, batch, max_length, ctx.compute(), ctx.device) {
    if (with_globals) global_.emplace(config, batch, max_length, ctx.compute(), ctx.device);
  }
  std::int64_t length() const override { return local_.length(); }
  std::int64_t bytes_per_token() const override {
    return local_.bytes_per_token() + (global_ ? global_->bytes_per_token() : 0);
  }
  void reorder(Ctx& ctx, std::span<const std::int64_t> samples) override {
    local_.reorder(ctx, samples);
    if (global_) global_->reorder(ctx, samples);
  }
  KeyValueCache& local() { return local_; }
  KeyValueCache& global() { return *global_; }

 private:
  KeyValueCache local_;
  std::optional<KeyValueCache> global_;
};

class Longformer final : public Attention {
 public:
  Longformer(const AttentionConfig& config, const config::Node& options)
      : config_(config),
        pattern_(config, options),
        local_(config, exact_choice(options), pattern_.local_pattern()),
        global_(config, exact_choice(options), pattern_.global_pattern()) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    if (!in.global_mask.defined()) return listed(ctx, in);
    const PlanShape shape{in.q.size(0), in.q.size(1), in.k.size(1),
                          in.q.size(2), in.k.size(2), config_.causal};
    return both(ctx, in, in.global_mask, plans_.fill(ctx, pattern_, shape, in.global_mask));
  }

  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    if (!config_.causal) return nullptr;
    return std::make_unique<LongformerState>(config_, !pattern_.globals().empty(), ctx, batch,
                                             max_length);
  }

  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    auto& past = dynamic_cast<LongformerState&>(state);
    std::vector<DecodeSet> sets{{in.q, in.k, in.v, &past.local()}};
    if (!pattern_.globals().empty()) {
      require_projections(in);
      sets.push_back({in.q_global, in.k_global, in.v_global, &past.global()});
    }
    return decode_step(ctx, in.key_valid, sets, [&](std::span<const DecodePart> parts) {
      AttentionInput all;
      all.q = parts[0].q;
      all.k = parts[0].k;
      all.v = parts[0].v;
      if (parts.size() > 1) {
        all.q_global = parts[1].q;
        all.k_global = parts[1].k;
        all.v_global = parts[1].v;
      }
      return listed(ctx, all);
    });
  }

  std::string kernel() const override { return local_.kernel(); }

 private:
  static void require_projections(const AttentionInput& in) {
    if (in.q_global.defined() && in.k_global.defined() && in.v_global.defined()) return;
    throw ShapeError("longformer: global tokens need q_global, k_global and v_global");
  }

  // The listed global tokens, of which there may be none.
  AttentionOutput listed(Ctx& ctx, const AttentionInput& in) {
    const std::int64_t queries = in.q.size(2), keys = in.k.size(2);
    if (!pattern_.meets_global(queries, keys))
      return local_.forward(ctx, in, cat(path(), ".dropout"));
    const Tensor mask = listed_mask(ctx, keys).slice(1, keys - queries, keys);
    return both(ctx, in, mask, {});
  }

  // Rows of global tokens by full attention over the second projections, others by the first ones.
  AttentionOutput both(Ctx& ctx, const AttentionInput& in, const Tensor& mask,
                       const MaskedPlans::Pair& plans) {
    require_projections(in);
    AttentionInput second = in;
    second.q = in.q_global;
    second.k = in.k_global;
    second.v = in.v_global;
    const AttentionOutput local = local_.forward(ctx, in, cat(path(), ".dropout"), plans.local);
    const AttentionOutput global =
        global_.forward(ctx, second, cat(path(), ".global_dropout"), plans.global);
    return {.o = select_rows(ctx, mask, global.o, local.o),
            .lse = select_rows(ctx, mask, global.lse, local.lse)};
  }

  // 1 at the listed positions, u8 [1, at least n]. Made once for most lengths: a captured step has
  // its address, so an old one stays.
  const Tensor& listed_mask(Ctx& ctx, std::int64_t n) {
    for (const Tensor& mask : masks_) {
      if (mask.device() == ctx.device && mask.size(1) >= n) return mask;
    }
    const std::int64_t length = std::max<std::int64_t>(n, config_.max_len);
    std::vector<double> flags(static_cast<std::size_t>(length), 0.0);
    for (const std::int64_t position : pattern_.globals())
      flags[static_cast<std::size_t>(position)] = 1;
    masks_.push_back(Tensor::from(flags, {1, length}, DType::u8).to(ctx.device, ctx.stream));
    return masks_.back();
  }

  AttentionConfig config_;
  LongformerPattern pattern_;
  ExactOperator local_, global_;
  MaskedPlans plans_;
  std::vector<Tensor> masks_;
};

std::vector<ProjectionSpec> longformer_projections(const AttentionConfig& config,
                                                   const config::Node& options) {
  const int h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  std::vector<ProjectionSpec> out = standard_projections(config);
  if (!has_globals(config, options)) return out;
  out.push_back({.name = "q_global", .heads = h, .width = d, .rope = true, .qk_norm = true});
  out.push_back({.name = "k_global", .heads = hk, .width = d, .rope = true, .qk_norm = true});
  out.push_back({.name = "v_global", .heads = hk, .width = dv});
  return out;
}

std::unique_ptr<Attention> make_longformer(const AttentionConfig& config,
                                           const config::Node& options) {
  return std::make_unique<Longformer>(config, options);
}

Cost longformer_cost(const AttentionConfig& config, const config::Node& options,
                     std::int64_t queries, std::int64_t keys) {
  const LongformerPattern pattern(config, options);
  Cost cost = exact_cost(config, queries, keys, pattern.local_pairs(queries, keys),
                         tiled_pairs(pattern.local_pattern(), config, queries, keys));
  if (!pattern.meets_global(queries, keys)) return cost;
  cost += exact_cost(config, queries, keys, pattern.global_pairs(queries, keys),
                     tiled_pairs(pattern.global_pattern(), config, queries, keys));
  return cost;
}

// baselines.md 6.1 and 6.2: rows of global tokens over the second projections, all others over the
// first ones.
Tensor definition(Attention& /*method*/, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  const LongformerPattern pattern(config, options);
  const std::int64_t queries = in.q.size(2), before = in.k.size(2) - queries;
  const auto is_global = [&](std::int64_t batch, std::int64_t token) {
    if (in.global_mask.defined())
      return in.global_mask.data<std::uint8_t>()[batch * in.k.size(2) + token] != 0;
    return std::binary_search(pattern.globals().begin(), pattern.globals().end(), token);
  };
  Tensor o = exact_by_pairs(config, options, in, [&](const Pair& pair) {
    const auto head = static_cast<std::size_t>(pair.head);
    const TileRule& window = pattern.windows()[head % pattern.windows().size()];
    const std::int64_t behind = pair.query + before - pair.key;
    return is_global(pair.batch, pair.key) ||
           (behind <= window.left && behind >= -window.right && behind % window.dilation == 0);
  });
  if (!has_globals(config, options)) return o;
  AttentionInput second = in;
  second.q = in.q_global;
  second.k = in.k_global;
  second.v = in.v_global;
  const Tensor of_globals =
      exact_by_pairs(config, options, second, [](const Pair&) { return true; });
  for (std::int64_t b = 0; b < o.size(0); ++b) {
    for (std::int64_t i = 0; i < queries; ++i) {
      if (!is_global(b, i + before)) continue;
      copy_host(o.slice(0, b, b + 1).slice(2, i, i + 1).view(),
                of_globals.slice(0, b, b + 1).slice(2, i, i + 1).view());
    }
  }
  return o;
}

}  // namespace

AttentionSpec longformer_attention() {
  return {
      .name = "longformer",
      .summary = "Exact attention in sliding windows, dilated or not, with a few global tokens.",
      .source = "Beltagy et al. 2020, arXiv:2004.05150, section 3",
      .options = kOptions,
      .caps = kCapabilities,
      .projections = longformer_projections,
      .make = make_longformer,
      .cost = longformer_cost,
      .linear = always_linear,
      .definition = definition,
      .dense_when = "window: 2097152",
      .example = "{window: 4, global_tokens: [0, 3]}"};
}

}  // namespace fovea::attention
