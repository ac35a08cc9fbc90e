// cosFormer: relu features, reweighted by the cosine of distances. baselines.md 12.

#include <algorithm>
#include <cmath>

#include "attention/definition.h"
#include "attention/length_option.h"
#include "attention/linear/kernel_core.h"
#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"n_ref", config::Type::integer, "max_len", "[1, inf) | max_len | current",
     "The length at which the weight of a distance reaches zero, and the most tokens; at least "
     "model.block_size, which max_len stands for. current: that of each call, so that outputs "
     "depend on how long a "
     "batch is, and tokens cannot be generated one by one."},
    {"eps_den", config::Type::number, "1e-6", "(0, inf)", "Least denominator."},
    kChunkOption,
};

class Cosformer final : public Attention {
 public:
  // reference 0: that of each call.
  Cosformer(const AttentionConfig& config, const config::Node& options, std::int64_t reference)
      : width_(config.qk_dim),
        reference_(reference),
        core_(config, Normaliser::clamp, options.get_number("eps_den"), options.get_int("chunk")) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    const Features map = features(std::max(in.q.size(2), in.k.size(2)));
    return {.o = core_.attend(ctx, in, map, map)};
  }
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    if (reference_ == 0) return nullptr;
    return core_.start(ctx, batch, max_length, 2 * width_, core_.states());
  }
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    auto& running = dynamic_cast<RunningState&>(state);
    const std::int64_t tokens = in.q.size(2);
    Features map = features(running.length() + tokens);
    std::vector<double> places;
    for (const std::int64_t length : running.lengths()) {
      for (std::int64_t i = 0; i < tokens; ++i)
        places.push_back(static_cast<double>(length + i));
    }
    map.positions = Tensor::from(places, {in.q.size(0), tokens}, DType::i32);
    if (!ctx.device.is_cpu()) map.positions = map.positions.to(ctx.device, ctx.stream);
    return {.o = core_.step(ctx, running, in, map, map)};
  }
  std::string kernel() const override { return "sums"; }

 private:
  Features features(std::int64_t tokens) const {
    if (reference_ != 0 && tokens > reference_) {
      throw ShapeError(cat("cosformer: ", tokens, " tokens, but model.attention.n_ref is ",
                           reference_, ": weights would become negative"));
    }
    return {.kind = FeatureKind::cosine,
            .reference = static_cast<double>(reference_ == 0 ? tokens : reference_)};
  }

  std::int64_t width_, reference_;
  KernelCore core_;
};

bool is_current(const config::Node& options) {
  const config::Node* const value = options.find("n_ref");
  return value != nullptr && value->text() == "current";
}

// 0: the length of each call.
std::int64_t reference_of(const AttentionConfig& config, const config::Node& options) {
  return is_current(options) ? 0 : whole_length_option(config, options, "n_ref");
}

std::int64_t longest(const AttentionConfig& config, const config::Node& options) {
  return length_option(config, options, "n_ref");
}

constexpr Capabilities kCapabilities{
    .cross = true, .segments = true, .any_length = false, .decode = true, .any_width = false};

Capabilities caps_with(Capabilities caps, const config::Node& options) {
  caps.any_length = is_current(options);
  caps.decode = !caps.any_length;
  return caps;
}

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  return std::make_unique<Cosformer>(config, options, reference_of(config, options));
}

Tensor definition(Attention& /*method*/, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  constexpr double kQuarterTurn = 1.57079632679489661923;
  const std::int64_t fixed = reference_of(config, options),
                     tokens = std::max(in.q.size(2), in.k.size(2));
  const auto reference = static_cast<double>(fixed == 0 ? tokens : fixed);
  const auto weight = [&](const Pair& pair) {
    double sum = 0;
    for (int c = 0; c < config.qk_dim; ++c)
      sum += std::max(pair.q[c], 0.0) * std::max(pair.k[c], 0.0);
    return sum * std::cos(kQuarterTurn * static_cast<double>(pair.query - pair.key) / reference);
  };
  const double floor = options.get_number("eps_den");
  return weighted_by_pairs(config, in, weight,
                           [floor](double mass, double) { return std::max(mass, floor); });
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const KernelSize size{.features = 2.0 * config.qk_dim,
                        .key_map_heads = static_cast<double>(config.n_kv_head),
                        .states = static_cast<double>(config.n_kv_head)};
  return kernel_cost(config, size, options.get_int("chunk"), queries, keys);
}

}  // namespace

AttentionSpec cosformer_attention() {
  return {.name = "cosformer",
          .summary = "Kernel attention with relu features, reweighted by the cosine of distances.",
          .source = "Qin et al. 2022, arXiv:2202.08791, eq. 9 to 12",
          .options = kOptions,
          .caps = kCapabilities,
          .caps_with = caps_with,
          .make = make,
          .cost = cost,
          .linear = always_linear,
          .longest = longest,
          .definition = definition,
          .small_run =
              "1.23 times the bits per byte of `standard`. A weight grows as the product of relu "
              "features and not as the exponential of one: a head that copies one byte needs "
              "features that are orthogonal to those of all other keys. The cosine does not "
              "single out a neighbour: with n_ref 256 the weights of the distances 1 and 2 differ "
              "by 0.006 %. RoPE turns queries and keys before the feature map, so that a weight "
              "is no function of the distance alone."};
}

}  // namespace fovea::attention
