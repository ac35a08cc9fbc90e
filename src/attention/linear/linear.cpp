// The Linear Transformer: elu + 1 as feature map. baselines.md 11.

#include <cmath>

#include "attention/definition.h"
#include "attention/linear/kernel_core.h"
#include "attention/registry.h"

namespace fovea::attention {

namespace {

constexpr double kAdded = 1e-6;  // to the denominator

constexpr config::Option kOptions[] = {
    {"feature", config::Type::choice, "elu1", "elu1", "The feature map: elu(x) + 1."},
    {"normaliser", config::Type::choice, "sum", "sum | sqrt_n",
     "What a row is divided by: the sum of its weights, or the square root of the number of keys "
     "(bidirectional only)."},
    kChunkOption,
};

Capabilities caps_with(Capabilities caps, const config::Node& options) {
  if (options.get_string("normaliser") != "sqrt_n") return caps;
  caps.causal = caps.decode = caps.decay = caps.convex = false;
  caps.note = "normaliser sqrt_n divides by the number of keys of the whole sequence";
  return caps;
}

class Linear final : public Attention {
 public:
  Linear(const AttentionConfig& config, Normaliser normaliser, std::int64_t chunk)
      : width_(config.qk_dim), core_(config, normaliser, kAdded, chunk) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    return {.o = core_.attend(ctx, in, map_, map_)};
  }
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    return core_.start(ctx, batch, max_length, width_, core_.states());
  }
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    return {.o = core_.step(ctx, dynamic_cast<RunningState&>(state), in, map_, map_)};
  }
  std::string kernel() const override { return "sums"; }

 private:
  std::int64_t width_;
  Features map_{.kind = FeatureKind::elu};
  KernelCore core_;
};

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  const bool sqrt_n = options.get_string("normaliser") == "sqrt_n";
  return std::make_unique<Linear>(config, sqrt_n ? Normaliser::sqrt_n : Normaliser::add,
                                  options.get_int("chunk"));
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const KernelSize size{.features = static_cast<double>(config.qk_dim),
                        .key_map_heads = static_cast<double>(config.n_kv_head),
                        .states = static_cast<double>(config.n_kv_head)};
  return kernel_cost(config, size, options.get_int("chunk"), queries, keys);
}

Tensor definition(Attention& /*method*/, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  const auto feature = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const auto weight = [&](const Pair& pair) {
    double sum = 0;
    for (int c = 0; c < config.qk_dim; ++c)
      sum += feature(pair.q[c]) * feature(pair.k[c]);
    return sum * alibi_decay(config, pair);
  };
  const bool sqrt_n = options.get_string("normaliser") == "sqrt_n";
  return weighted_by_pairs(config, in, weight, [sqrt_n](double mass, double keys) {
    return sqrt_n ? std::sqrt(keys) : mass + kAdded;
  });
}

}  // namespace

AttentionSpec linear_attention() {
  return {.name = "linear",
          .summary = "Kernel attention with elu(x) + 1: running sums instead of weights.",
          .source = "Katharopoulos et al. 2020, arXiv:2006.16236, eq. 4 to 7 and 12",
          .options = kOptions,
          .caps = {.cross = true,
                   .segments = true,
                   .decode = true,
                   .any_width = false,
                   .decay = true,
                   .unordered = true},
          .caps_with = caps_with,
          .make = make,
          .cost = cost,
          .linear = always_linear,
          .definition = definition,
          .small_run =
              "1.24 times the bits per byte of `standard`. A weight grows as the product of "
              "features and not as the exponential of one, and no feature is negative: a head "
              "that copies one byte needs features that are nearly orthogonal to those of all "
              "other keys, where softmax needs a difference of a few units. RoPE turns queries "
              "and keys before the feature map, so that a weight is no function of the distance "
              "alone."};
}

}  // namespace fovea::attention
