// BigBird: global, window and random blocks of keys. baselines.md 7.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "attention/bigbird/pattern.h"
#include "attention/exact/cost.h"
#include "attention/exact/decode.h"
#include "attention/exact/exact_method.h"
#include "attention/length_option.h"
#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"block", config::Type::integer, "64", "[1, 65536]", "Tokens of a block."},
    {"random_blocks", config::Type::integer, "3", "[0, 64]",
     "Random key blocks of a query block, drawn once for every head."},
    {"random_range", config::Type::integer, "all", "[1, 1000000000] | all",
     "Random blocks are taken from so many first tokens."},
    {"min_length", config::Type::integer, "1024", "[0, 1000000000]",
     "Bidirectional: exact attention where max_len is shorter."},
    {"max_len", config::Type::integer, "", "[1, 1000000000]",
     "Tokens that the pattern is made for, at least model.block_size, which is the default; longer "
     "inputs are refused."},
    {"causal_mode", config::Type::choice, "pattern", "pattern | dense",
     "Causal: block 0, a window and random blocks, or exact attention as in the original."},
    {"causal_window_blocks", config::Type::integer, "3", "[1, 65536]",
     "Causal: blocks of the window, a token's own the last."},
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
    .any_length = false,
    .decode = true,
    .anchored = true,
    .any_width = false,
    .note = "its pattern relates the positions of one sequence",
};

constexpr std::int32_t kNotDrawn = -2;

class BigBird final : public Attention {
 public:
  BigBird(const AttentionConfig& config, const config::Node& options)
      : config_(config),
        pattern_(config, options),
        operator_(
            config, exact_choice(options),
            pattern_.is_exact() ? Pattern() : [this](const PlanShape& shape) {
              return pattern_.rules(shape, lists_);
            }) {
    if (pattern_.is_exact() || pattern_.random_blocks() == 0) return;
    const Shape shape{config.n_head, pattern_.blocks(), pattern_.random_blocks()};
    const std::vector<double> none(static_cast<std::size_t>(shape.numel()), kNotDrawn);
    drawn_ = &buffer("blocks", Tensor::from(none, shape, DType::i32), /*on_host=*/true);
  }

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    prepare(ctx, in.k.size(2));
    return operator_.forward(ctx, in, cat(path(), ".dropout"));
  }

  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    if (!config_.causal) return nullptr;
    require_length(max_length);
    return std::make_unique<KeyValueCache>(config_, batch, max_length, ctx.compute(), ctx.device);
  }

  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    return decode_step(ctx, state, in,
                       [&](const AttentionInput& all) { return forward(ctx, all); });
  }

  std::string kernel() const override { return operator_.kernel(); }
  std::string refused() const override {
    return pattern_.is_exact() ? join_reasons(pattern_.why_exact(), operator_.refused()) : "";
  }

 private:
  static std::string join_reasons(const std::string& a, const std::string& b) {
    return a.empty() || b.empty() ? a + b : cat(a, "; ", b);
  }

  void require_length(std::int64_t tokens) const {
    if ((config_.causal && pattern_.is_exact()) || tokens <= pattern_.longest()) return;
    throw ShapeError(cat("bigbird: ", tokens, " tokens, but its pattern is made for ",
                         pattern_.longest(), " (model.attention.max_len)"));
  }

  // A file may hold anything.
  void require_blocks(const Tensor& drawn) const {
    const auto* blocks = drawn.data<std::int32_t>();
    for (std::int64_t i = 0; i < drawn.numel(); ++i) {
      if (blocks[i] < -1 || blocks[i] >= pattern_.blocks())
        throw ShapeError(cat("bigbird: blocks holds ", blocks[i], " at element ", i,
                             ", but blocks are 0 to ", pattern_.blocks() - 1, ", or -1 for none"));
    }
  }

  // Draws the random blocks if no checkpoint brought them, and sees to it that plans are of them.
  void prepare(Ctx& ctx, std::int64_t tokens) {
    require_length(tokens);
    if (drawn_ == nullptr) return;
    const auto bytes = static_cast<std::size_t>(drawn_->bytes());
    if (*drawn_->data<std::int32_t>() == kNotDrawn)
      pattern_.draw(*drawn_, ctx.seed, cat(path(), ".blocks"));
    const bool known = planned_.defined() && planned_for_ == ctx.device &&
                       std::memcmp(planned_.view().data, drawn_->view().data, bytes) == 0;
    if (known) return;
    require_blocks(*drawn_);
    operator_.forget_plans();
    planned_for_ = ctx.device;
    planned_ = Tensor::empty(drawn_->shape(), DType::i32, kCpu);
    std::memcpy(planned_.view().data, drawn_->view().data, bytes);
    lists_ = ctx.device.is_cuda() ? planned_.to(ctx.device, ctx.stream) : planned_;
  }

  AttentionConfig config_;
  BigBirdPattern pattern_;
  ExactOperator operator_;
  Tensor* drawn_ = nullptr;  // the buffer, i32 [H, blocks, random blocks] on the host; null: none
  Tensor planned_, lists_;   // what the plans are of, on the host and where they work
  Device planned_for_;
};

std::unique_ptr<Attention> make_bigbird(const AttentionConfig& config,
                                        const config::Node& options) {
  return std::make_unique<BigBird>(config, options);
}

Cost bigbird_cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
                  std::int64_t keys) {
  const BigBirdPattern pattern(config, options);
  if (pattern.is_exact()) return dense_cost(config, exact_choice(options), queries, keys);
  // Draws of another seed touch as many tiles, or nearly so where blocks are no tiles.
  Tensor lists = Tensor::empty({1, pattern.blocks(), pattern.random_blocks()}, DType::i32, kCpu);
  pattern.draw(lists, 0, "cost");
  const Pattern rules = [&](const PlanShape& shape) { return pattern.rules(shape, lists); };
  return exact_cost(config, queries, keys, pattern.pairs(queries, keys),
                    tiled_pairs(rules, config, queries, keys));
}

bool bigbird_is_linear(const AttentionConfig& config, const config::Node& options) {
  return !BigBirdPattern(config, options).is_exact();
}

// The tables of baselines.md 7, block by block, with the random blocks that `method` drew.
Tensor definition(Attention& method, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  const BigBirdPattern pattern(config, options);
  const std::vector<double> drawn = values_of(method, "blocks");
  const std::int64_t block = options.get_int("block"), last = pattern.blocks() - 1,
                     window = options.get_int("causal_window_blocks"),
                     random = pattern.random_blocks(), before = in.k.size(2) - in.q.size(2);
  return exact_by_pairs(config, options, in, [&](const Pair& pair) {
    const std::int64_t row = (pair.query + before) / block, column = pair.key / block;
    if (pattern.is_exact() || column == 0) return true;
    const auto list = drawn.begin() + (pair.head * pattern.blocks() + row) * random;
    if (!drawn.empty() && std::find(list, list + random, double(column)) != list + random)
      return true;
    if (config.causal) return row - column < window;
    return row == 0 || row == last || column == last || std::abs(row - column) <= 1;
  });
}

}  // namespace

AttentionSpec bigbird_attention() {
  return {.name = "bigbird",
          .summary = "Exact attention over global, neighbouring and random blocks of keys.",
          .source =
              "Zaheer et al. 2020, arXiv:2007.14062, sections 2 and 3; the causal pattern is "
              "ours",
          .options = kOptions,
          .caps = kCapabilities,
          .make = make_bigbird,
          .cost = bigbird_cost,
          .linear = bigbird_is_linear,
          .longest = longest_by_max_len,
          .definition = definition,
          .dense_when = "block: ${max_len}",
          .example = "{block: 4, random_blocks: 1, min_length: 0}"};
}

}  // namespace fovea::attention
