// Performer: softmax attention by positive random features, FAVOR+. baselines.md 10.

#include <cmath>

#include "attention/exact/exact_operator.h"
#include "attention/linear/kernel_core.h"
#include "attention/performer/definition.h"
#include "attention/performer/orthogonal.h"
#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr double kReluOffset = 1e-3;
constexpr double kEpsBidirectional = 1e-4;

constexpr config::Option kOptions[] = {
    {"features", config::Type::integer, "256", "[1, 65536]", "Random features m of each head."},
    {"feature_kernel", config::Type::choice, "softmax", "softmax | relu",
     "What features estimate: softmax attention, or nothing but themselves, "
     "max(<w, x>, 0) + 1e-3."},
    {"project", config::Type::boolean, "true", "",
     "Whether relu features are of random projections; without, m is the width of a head."},
    {"eps_den", config::Type::number, "1e-6", "(0, inf)",
     "Least denominator, of features divided by their largest."},
    {"orthogonal", config::Type::boolean, "true", "",
     "Whether directions are orthogonal in blocks of the head's width."},
    {"scaling", config::Type::choice, "chi", "chi | constant",
     "The length of a direction: a Gaussian vector's, or the square root of the width."},
    {"hyperbolic", config::Type::boolean, "false", "",
     "Features of m/2 directions and of their opposites: less variance."},
    {"per_head", config::Type::boolean, "false", "",
     "Directions of its own for each key/value head."},
    {"redraw_interval", config::Type::integer, "1000", "[0, inf)",
     "Steps of training between new draws of the directions; 0: never."},
    {"eps", config::Type::number, "", "[0, inf)",
     "Added to softmax features; by default 1e-4, in causal attention 0. Stabilisers are constants "
     "of the backward pass, so gradients are exact only where features are large beside it."},
    {"key_stabiliser", config::Type::choice, "", "running | constant | global",
     "What exponents of keys are relative to: the largest so far (causal; whole powers of two, so "
     "that it changes no bit), 0 with exponents clamped at 60, or the largest of the sequence "
     "(bidirectional). By default running where causal, else global."},
    kScaleOption,
    kChunkOption,
};

[[noreturn]] void refuse(const config::Node& options, const char* key, const std::string& what) {
  const config::Node* node = options.find(key);
  const std::string place = node == nullptr ? options.place().str() : node->place().str();
  throw ConfigError(cat(place.empty() ? "" : place + ": ", "model.attention.", key, " ", what));
}

// Directions that are drawn for each head, 0 without projection.
std::int64_t directions_of(const config::Node& options) {
  if (!options.get_bool("project")) return 0;
  const std::int64_t features = options.get_int("features");
  return options.get_bool("hyperbolic") ? features / 2 : features;
}

std::int64_t features_of(const AttentionConfig& config, const config::Node& options) {
  return options.get_bool("project") ? options.get_int("features") : config.qk_dim;
}

double eps_of(const AttentionConfig& config, const config::Node& options) {
  if (options.get_string("feature_kernel") == "relu") return 0;
  if (options.find("eps") != nullptr) return options.get_number("eps");
  return is_causal(config) ? 0 : kEpsBidirectional;
}

void check(const AttentionConfig& config, const config::Node& options) {
  const bool relu = options.get_string("feature_kernel") == "relu";
  if (!relu && !options.get_bool("project"))
    refuse(options, "project", "is false, but softmax features are projections");
  if (options.get_bool("hyperbolic") && (relu || options.get_int("features") % 2 != 0))
    refuse(options, "hyperbolic", "is true, but needs softmax features, an even number of them");
  if (!is_causal(config) || relu) return;
  const config::Node* given = options.find("key_stabiliser");
  const std::string stabiliser = given == nullptr ? "running" : given->text();
  if (stabiliser == "global")
    refuse(options, "key_stabiliser",
           "is global, but the largest exponent of a sequence would tell earlier tokens of later "
           "ones; use running or constant");
  if (stabiliser == "running" && eps_of(config, options) > 0)
    refuse(options, "eps",
           cat("is ", eps_of(config, options),
               ", but must be 0 in causal attention with a running stabiliser, which cancels only "
               "without it; use key_stabiliser: constant"));
}

class Performer final : public Attention {
 public:
  Performer(const AttentionConfig& config, const config::Node& options)
      : features_(features_of(config, options)),
        interval_(options.get_int("redraw_interval")),
        orthogonal_(options.get_bool("orthogonal")),
        scale_(options.get_string("scaling") == "chi" ? DirectionScale::chi
                                                      : DirectionScale::constant),
        core_(config, Normaliser::clamp, floor_of(options), options.get_int("chunk")) {
    const bool relu = options.get_string("feature_kernel") == "relu";
    query_map_.kind =
        relu ? (options.get_bool("project") ? FeatureKind::relu_random : FeatureKind::relu)
        : options.get_bool("hyperbolic") ? FeatureKind::softmax_pair
                                         : FeatureKind::softmax;
    query_map_.scale = std::sqrt(score_scale(config, options));
    query_map_.offset = kReluOffset;
    query_map_.eps = eps_of(config, options);
    key_map_ = query_map_;
    const bool constant = options.find("key_stabiliser") != nullptr &&
                          options.get_string("key_stabiliser") == "constant";
    // Without eps the scale of a row cancels, and the kernels take whole powers of two out of it.
    if (query_map_.eps > 0) {
      query_map_.stabiliser = Stabiliser::own;
      key_map_.stabiliser = Stabiliser::shared;
    }
    if (constant) key_map_.stabiliser = Stabiliser::constant;
    if (const std::int64_t directions = directions_of(options); directions > 0) {
      Shape shape{directions, config.qk_dim};
      if (options.get_bool("per_head")) shape = {config.n_kv_head, directions, config.qk_dim};
      const std::vector<double> none(static_cast<std::size_t>(shape.numel()), 0.0);
      w_ = &buffer("W", Tensor::from(none, shape, DType::f32));
    }
  }

  // Directions are a function of (seed, path, number of the draw).
  void before_step(Ctx& ctx, const nn::Clock& clock) override {
    const std::int64_t draw = interval_ == 0 ? 0 : clock.step / interval_;
    if (w_ == nullptr || draw == drawn_) return;
    draw_directions(ctx, *w_, orthogonal_, scale_, cat(path(), ".W.", draw));
    drawn_ = draw;
  }

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    return {.o = core_.attend(ctx, in, map(ctx, query_map_), map(ctx, key_map_))};
  }
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    return core_.start(ctx, batch, max_length, features_, core_.states());
  }
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    return {.o = core_.step(ctx, dynamic_cast<RunningState&>(state), in, map(ctx, query_map_),
                            map(ctx, key_map_))};
  }
  std::string kernel() const override { return "sums"; }

 private:
  // Features are made without their factor m^(-1/2), so denominators are m times those of eps_den.
  static double floor_of(const config::Node& options) {
    const bool relu = options.get_string("feature_kernel") == "relu";
    return options.get_number("eps_den") *
           (relu ? 1 : static_cast<double>(options.get_int("features")));
  }
  Features map(Ctx& ctx, Features of) const {
    if (w_ != nullptr) of.w = directions_for(ctx, *w_);
    return of;
  }

  std::int64_t features_, interval_, drawn_ = -1;
  bool orthogonal_;
  DirectionScale scale_;
  Features query_map_, key_map_;
  KernelCore core_;
  Tensor* w_ = nullptr;  // f32 [directions, width], or [Hk, directions, width]; null: none
};

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  check(config, options);
  return std::make_unique<Performer>(config, options);
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const KernelSize size{.features = static_cast<double>(features_of(config, options)),
                        .directions = static_cast<double>(directions_of(options)),
                        .key_map_heads = static_cast<double>(config.n_kv_head),
                        .states = static_cast<double>(config.n_kv_head)};
  return kernel_cost(config, size, options.get_int("chunk"), queries, keys);
}

}  // namespace

AttentionSpec performer_attention() {
  return {.name = "performer",
          .summary = "Softmax attention estimated by positive orthogonal random features, FAVOR+.",
          .source = "Choromanski et al. 2021, arXiv:2009.14794, eq. 4, 5 and section 2.4",
          .options = kOptions,
          .caps = {.cross = true,
                   .segments = true,
                   .decode = true,
                   .any_width = false,
                   .decay = true,
                   .unordered = true},
          .make = make,
          .cost = cost,
          .linear = always_linear,
          .definition = performer_definition,
          .example = "eps: 0",
          .small_run =
              "1.13 times the bits per byte of `standard`. Weights are estimates of softmax "
              "weights whose relative variance grows as exp(|q + k|^2 / sqrt(d)): the larger "
              "queries and keys become, as a head needs that picks one token, the noisier its "
              "weights are."};
}

}  // namespace fovea::attention
