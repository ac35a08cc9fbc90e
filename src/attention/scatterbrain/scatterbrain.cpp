// Scatterbrain: exact weights inside a window, estimated ones outside it. baselines.md 16.
//
// Keys outside the window lie before it and, bidirectionally, behind it. Either side is a causal
// sum of features over tokens that lag behind the query, the second of the sequence turned round;
// nothing is subtracted, so every weight is positive. The parts are put together by the logarithms
// of their sums.

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/exact/exact_operator.h"
#include "attention/linear/kernel_core.h"
#include "attention/performer/orthogonal.h"
#include "attention/registry.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/low_rank.h"
#include "autograd/ops/move_tokens.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

// Far below any sum of features over their scale, so that it holds nothing but empty rows.
constexpr double kFloor = 1e-30;
constexpr std::int64_t kChunk = 128;

constexpr config::Option kOptions[] = {
    {"support", config::Type::choice, "local", "local", "Where weights are exact: in a window."},
    {"window", config::Type::integer, "64", "[1, inf)",
     "Keys j of query i with -floor(window / 2) <= j - i < ceil(window / 2) have exact weights."},
    {"features", config::Type::integer, "32", "[1, 65536]",
     "Random features of each head, for the weights outside the window."},
    {"hyperbolic", config::Type::boolean, "true", "",
     "Features of half as many directions and of their opposites: less variance."},
};

struct Settings {
  std::int64_t left, right;  // the window: i - left <= j <= i + right
  std::int64_t features, directions;
  bool hyperbolic;
  explicit Settings(const config::Node& options)
      : left(options.get_int("window") / 2),
        right((options.get_int("window") + 1) / 2 - 1),
        features(options.get_int("features")),
        directions(features),
        hyperbolic(options.get_bool("hyperbolic")) {
    if (hyperbolic) directions /= 2;
  }
};

Pattern window_pattern(const Settings& settings) {
  return [settings](const PlanShape& shape) {
    PlanRule rule;
    rule.rule.left = static_cast<std::int32_t>(std::min<std::int64_t>(settings.left, kNoToken - 1));
    rule.rule.right =
        shape.causal
            ? 0
            : static_cast<std::int32_t>(std::min<std::int64_t>(settings.right, kNoToken - 1));
    return std::vector{rule};
  };
}

class Scatterbrain final : public Attention {
 public:
  Scatterbrain(const AttentionConfig& config, const Settings& settings)
      : config_(config), settings_(settings), exact_(config, {}, window_pattern(settings)) {
    map_.kind = settings.hyperbolic ? FeatureKind::softmax_pair : FeatureKind::softmax;
    map_.scale = std::pow(static_cast<double>(config.qk_dim), -0.25);
    const Shape shape{settings.directions, config.qk_dim};
    const std::vector<double> none(static_cast<std::size_t>(shape.numel()), 0.0);
    w_ = &buffer("W", Tensor::from(none, shape, DType::f32));
  }

  // Drawn once; a function of (seed, path).
  void before_step(Ctx& ctx, const nn::Clock& /*clock*/) override {
    if (!drawn_) draw_directions(ctx, *w_, true, DirectionScale::chi, cat(path(), ".W"));
    drawn_ = true;
  }

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    const AttentionOutput inside = exact_.forward(ctx, in, cat(path(), ".dropout"));
    const std::int64_t n = in.q.size(2), before = n - settings_.left - 1,
                       behind = n - settings_.right - 1;
    std::vector<AttentionResult> parts = {{inside.o, inside.lse}};
    if (before > 0)
      parts.push_back(outside(ctx, in, {n - before, before, false}, {0, before, false}));
    if (!config_.causal && behind > 0)
      parts.push_back(outside(ctx, in, {0, behind, true}, {n - behind, behind, true}));
    if (parts.size() == 1) return {.o = inside.o};
    return {.o = merge_attention(ctx, parts).o};
  }
  std::string kernel() const override { return "tiled, sums"; }

 private:
  // Queries of one range over keys of another, the same number of each: query t sees keys up to t.
  AttentionResult outside(Ctx& ctx, const AttentionInput& in, const TokenRange& queries,
                          const TokenRange& keys) const {
    const Tensor& query_valid = in.query_valid.defined() ? in.query_valid : in.key_valid;
    LinearMask mask{.causal = true, .floor = kFloor, .chunk = kChunk, .lse = true};
    mask.key_valid = keys.of(ctx, in.key_valid);
    mask.query_valid = queries.of(ctx, query_valid);
    mask.query_segments = queries.of(ctx, in.segments);
    mask.key_segments = keys.of(ctx, in.key_segments.defined() ? in.key_segments : in.segments);
    Features map = map_;
    map.w = directions_for(ctx, *w_);
    const AttentionResult r =
        feature_attention(ctx, take_tokens(ctx, in.q, queries), take_tokens(ctx, in.k, keys),
                          take_tokens(ctx, in.v, keys), map, map, {}, mask);
    const std::int64_t n = in.q.size(2), b = in.q.size(0), h = in.q.size(1);
    const Var lse = put_tokens(ctx, reshape(ctx, r.lse, {b, h, queries.count, 1}), n, queries,
                               -std::numeric_limits<double>::infinity());
    return {put_tokens(ctx, r.o, n, queries), reshape(ctx, lse, {b, h, n})};
  }

  AttentionConfig config_;
  Settings settings_;
  ExactOperator exact_;
  Features map_;
  bool drawn_ = false;
  Tensor* w_ = nullptr;  // f32 [directions, width]
};

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  const Settings settings(options);
  if (settings.hyperbolic && settings.features % 2 != 0) {
    throw ConfigError(cat(options.find("features")->place().str(), ": model.attention.features is ",
                          settings.features, ", but must be even where hyperbolic is true"));
  }
  return std::make_unique<Scatterbrain>(config, settings);
}

// Pairs inside the window, and the sums of both sides.
Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const Settings settings(options);
  const double n = static_cast<double>(queries);
  // Keys within `reach` of a query on one side, its own apart.
  const auto reached = [n](double reach) {
    const double r = std::min(reach, n - 1);
    return n * r - r * (r + 1) / 2;
  };
  const bool causal = config.causal;
  const double pairs = n + reached(static_cast<double>(settings.left)) +
                       (causal ? 0 : reached(static_cast<double>(settings.right)));
  const double each = 2 * config.n_head * pairs;
  Cost out;
  out.useful_forward = each * (config.qk_dim + config.v_dim);
  out.useful_backward = each * (3 * config.qk_dim + 2 * config.v_dim);
  const double tokens =
      config.n_head * n * (config.qk_dim + config.v_dim) +
      config.n_kv_head * static_cast<double>(keys) * (config.qk_dim + config.v_dim);
  out.executed_forward = out.useful_forward;
  out.executed_backward = out.useful_backward;
  out.bytes_forward = 2 * tokens;
  out.bytes_backward = 4 * tokens;
  AttentionConfig sums = config;
  sums.causal = true;
  const KernelSize size{.features = static_cast<double>(settings.features),
                        .directions = static_cast<double>(settings.directions),
                        .key_map_heads = static_cast<double>(config.n_kv_head),
                        .states = static_cast<double>(config.n_kv_head)};
  const std::int64_t reaches[] = {settings.left, settings.right};
  for (int which = 0; which < (causal ? 1 : 2); ++which) {
    const std::int64_t rest = queries - reaches[which] - 1;
    if (rest > 0) out += kernel_cost(sums, size, kChunk, rest, rest);
  }
  return out;
}

}  // namespace

AttentionSpec scatterbrain_attention() {
  return {
      .name = "scatterbrain",
      .summary = "Exact weights inside a window, estimated by positive random features outside.",
      .source = "Chen et al. 2021, arXiv:2110.15343, algorithm 1, with a window as support",
      .options = kOptions,
      .caps = {.segments = true, .dropout = true, .any_width = false},
      .make = make,
      .cost = cost,
      .linear = always_linear,
      .example = "{window: 9, features: 16}"};
}

}  // namespace fovea::attention
