// Random Feature Attention: sines and cosines of normalised rows, optionally gated. baselines.md
// 13.

#include <algorithm>
#include <cmath>

#include "attention/definition.h"
#include "attention/linear/kernel_core.h"
#include "attention/registry.h"
#include "autograd/ops/linear.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"features", config::Type::integer, "64", "[1, 65536]",
     "Random directions of each head; a sine and a cosine of each."},
    {"temperature", config::Type::number, "1", "(0, inf)", "Divides projections."},
    {"learn_sigma", config::Type::boolean, "true", "",
     "Whether every head learns a factor for each coordinate."},
    {"gate", config::Type::boolean, "false", "",
     "Whether every head learns to forget: its sums decay by a gate of the layer's input. Causal "
     "only."},
    {"pool", config::Type::integer, "200", "[1, 10000]",
     "Matrices drawn once; each step of training picks one for each head, evaluation has fixed "
     "ones."},
    {"compat", config::Type::choice, "default", "default | released",
     "Constants: features times m^(-1/2) and denominators of at least 0.01, or the released "
     "code's 0.1 and 1."},
    kChunkOption,
};

// The least denominator of features without their constant.
double floor_of(const config::Node& options) {
  if (options.get_string("compat") == "released") return 1.0 / (0.1 * 0.1);
  return 1e-2 * static_cast<double>(options.get_int("features"));
}

Capabilities caps_with(Capabilities caps, const config::Node& options) {
  if (!options.get_bool("gate")) return caps;
  caps.bidirectional = caps.cross = caps.decay = caps.unordered = false;
  caps.note = "its gate decays sums from token to token, in the place of model.position: alibi";
  return caps;
}

class Rfa final : public Attention {
 public:
  Rfa(const AttentionConfig& config, const config::Node& options)
      : config_(config),
        directions_(options.get_int("features")),
        pool_(options.get_int("pool")),
        temperature_(options.get_number("temperature")),
        core_(config, Normaliser::clamp, floor_of(options), options.get_int("chunk")) {
    const Shape shape{pool_, directions_, config.qk_dim};
    const std::vector<double> none(static_cast<std::size_t>(shape.numel()), 0.0);
    w_ = &buffer("W", Tensor::from(none, shape, DType::f32));
    const Shape per_head{config.n_head, config.qk_dim};
    if (options.get_bool("learn_sigma"))
      sigma_ = &own("sigma", per_head, nn::Init::ones(), nn::Decay::no);
    if (options.get_bool("gate")) {
      gate_w_ = &own("gate.w", {config.n_head, config.n_embd}, nn::Init::normal(0.02));
      gate_b_ = &own("gate.b", {config.n_head}, nn::Init::zeros());
    }
  }

  // The pool is a function of (seed, path); the choice of a step also of its number.
  void before_step(Ctx& ctx, const nn::Clock& clock) override {
    if (w_->device().is_meta()) return;
    if (!drawn_) {
      const NamedStream stream(ctx.seed, cat(path(), ".W"));
      std::vector<double> values(static_cast<std::size_t>(w_->numel()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = stream.normal(i);
      transfer(*w_, Tensor::from(values, w_->shape(), DType::f32), ctx.stream);
      drawn_ = true;
    }
    const NamedStream choice(ctx.seed, cat(path(), ".entries.", clock.step));
    place_entries(ctx, chosen_, [&](std::size_t head) {
      return static_cast<double>(choice.below(head, static_cast<std::uint64_t>(pool_)));
    });
  }

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    const Features map = features(ctx);
    return {.o = core_.attend(ctx, in, map, map, gates(ctx, in))};
  }
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    return core_.start(ctx, batch, max_length, 2 * directions_, config_.n_head);
  }
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override {
    const Features map = features(ctx);
    return {.o = core_.step(ctx, dynamic_cast<RunningState&>(state), in, map, map, gates(ctx, in))};
  }
  std::string kernel() const override { return "sums"; }

 private:
  // i32 [H] on the context's device, in place where it stands there already.
  template <class F>
  void place_entries(Ctx& ctx, Tensor& to, F&& entry) const {
    std::vector<double> values(static_cast<std::size_t>(config_.n_head));
    for (std::size_t h = 0; h < values.size(); ++h)
      values[h] = entry(h);
    const Tensor host = Tensor::from(values, {config_.n_head}, DType::i32);
    if (to.defined() && to.device() == ctx.device)
      transfer(to, host, ctx.stream);
    else
      to = host.to(ctx.device, ctx.stream);
  }

  Features features(Ctx& ctx) {
    Features map{.kind = FeatureKind::fourier, .temperature = temperature_};
    map.w = directions_for(ctx, *w_);
    if (!(fixed_.defined() && fixed_.device() == ctx.device)) {
      place_entries(ctx, fixed_, [this](std::size_t head) {
        return static_cast<double>(static_cast<std::int64_t>(head) % pool_);
      });
    }
    const bool drawn_here = chosen_.defined() && chosen_.device() == ctx.device;
    map.entries = ctx.training && drawn_here ? chosen_ : fixed_;
    map.sigma = sigma_ != nullptr ? sigma_->var() : ones(ctx);
    return map;
  }
  Var ones(Ctx& ctx) {
    if (!ones_.defined() || ones_.dtype() != ctx.compute() || !(ones_.device() == ctx.device)) {
      const Shape shape{config_.n_head, config_.qk_dim};
      const std::vector<double> values(static_cast<std::size_t>(shape.numel()), 1.0);
      ones_ = Tensor::from(values, shape, ctx.compute()).to(ctx.device, ctx.stream);
    }
    return Var(ones_);
  }
  KeyWeights gates(Ctx& ctx, const AttentionInput& in) const {
    if (gate_w_ == nullptr) return {};
    return gate_weights(ctx, linear(ctx, in.x, gate_w_->var(), gate_b_->var()), in.key_valid);
  }

  AttentionConfig config_;
  std::int64_t directions_, pool_;
  double temperature_;
  KernelCore core_;
  bool drawn_ = false;
  Tensor* w_ = nullptr;             // f32 [pool, directions, width]
  Tensor chosen_, fixed_;           // i32 [H]: matrices of this step, and of evaluation
  Tensor ones_;                     // [H, width], where sigma is not learned
  nn::Parameter* sigma_ = nullptr;  // [H, width]
  nn::Parameter *gate_w_ = nullptr, *gate_b_ = nullptr;  // [H, C], [H]
};

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  return std::make_unique<Rfa>(config, options);
}

// x / (|x| + 1e-3).
std::vector<double> normalised(const double* x, int width) {
  double squares = 0;
  for (int c = 0; c < width; ++c)
    squares += x[c] * x[c];
  std::vector<double> out(x, x + width);
  for (double& value : out)
    value /= std::sqrt(squares) + 1e-3;
  return out;
}

// log g of every token and query head, and log (1 - g): [B,H,N]; empty without a gate.
std::pair<std::vector<double>, std::vector<double>> gate_logs(Attention& method,
                                                              const AttentionInput& in) {
  const std::vector<double> w = values_of(method, "gate.w"), b = values_of(method, "gate.b"),
                            x = in.x.value().values();
  if (w.empty()) return {};
  const auto heads = b.size(), width = w.size() / heads, rows = x.size() / width,
             tokens = static_cast<std::size_t>(in.q.size(2));
  std::vector<double> keep(heads * rows), take(heads * rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t h = 0; h < heads; ++h) {
      double z = b[h];
      for (std::size_t c = 0; c < width; ++c)
        z += w[h * width + c] * x[row * width + c];
      const std::size_t at = (row / tokens * heads + h) * tokens + row % tokens;
      keep[at] = -std::log1p(std::exp(-z));
      take[at] = -std::log1p(std::exp(z));
    }
  }
  return {keep, take};
}

// With the matrices of evaluation.
Tensor definition(Attention& method, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  const std::vector<double> w = values_of(method, "W"), sigma = values_of(method, "sigma");
  const auto width = static_cast<std::size_t>(config.qk_dim);
  const std::int64_t directions = options.get_int("features"), pool = options.get_int("pool"),
                     tokens = in.q.size(2);
  const double temperature = options.get_number("temperature");
  const auto gates = gate_logs(method, in);
  const std::vector<double>& keep = gates.first;
  const std::vector<double> valid =
      in.key_valid.defined() ? in.key_valid.values() : std::vector<double>();
  const auto weight = [&](const Pair& pair) {
    const auto head = static_cast<std::size_t>(pair.head);
    const std::vector<double> q = normalised(pair.q, config.qk_dim),
                              k = normalised(pair.k, config.qk_dim);
    const double* matrix = w.data() + pair.head % pool * directions * config.qk_dim;
    double sum = 0;
    for (std::int64_t r = 0; r < directions; ++r, matrix += width) {
      double u = 0;
      for (std::size_t c = 0; c < width; ++c)
        u += (sigma.empty() ? 1 : sigma[head * width + c]) * matrix[c] * (q[c] - k[c]);
      sum += std::cos(u / temperature);
    }
    if (!keep.empty()) {  // the key's own gate, and those of all tokens since
      const auto row = static_cast<std::size_t>((pair.batch * config.n_head + pair.head) * tokens);
      double by = gates.second[row + static_cast<std::size_t>(pair.key)];
      for (std::int64_t i = pair.key + 1; i <= pair.query; ++i) {
        if (valid.empty() || valid[static_cast<std::size_t>(pair.batch * tokens + i)] != 0)
          by += keep[row + static_cast<std::size_t>(i)];
      }
      sum *= std::exp(by);
    }
    return sum * alibi_decay(config, pair);
  };
  const double floor = floor_of(options);
  return weighted_by_pairs(config, in, weight,
                           [floor](double mass, double) { return std::max(mass, floor); });
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const auto directions = static_cast<double>(options.get_int("features"));
  // Keys are mapped and summed for every query head, since each has a sigma of its own.
  const KernelSize size{.features = 2 * directions,
                        .directions = directions,
                        .key_map_heads = static_cast<double>(config.n_head),
                        .states = static_cast<double>(config.n_head)};
  Cost out = kernel_cost(config, size, options.get_int("chunk"), queries, keys);
  if (options.get_bool("gate")) {
    const double gate = 2.0 * static_cast<double>(keys) * config.n_embd * config.n_head;
    out.useful_forward += gate;
    out.executed_forward += gate;
    out.useful_backward += 2 * gate;
    out.executed_backward += 2 * gate;
  }
  return out;
}

}  // namespace

AttentionSpec rfa_attention() {
  return {.name = "rfa",
          .summary =
              "Softmax attention of normalised rows estimated by sines and cosines, with an "
              "optional gate.",
          .source = "Peng et al. 2021, arXiv:2103.02143, eq. 3 to 8",
          .options = kOptions,
          .caps = {.cross = true,
                   .segments = true,
                   .decode = true,
                   .convex = false,
                   .any_width = false,
                   .decay = true,
                   .unordered = true},
          .caps_with = caps_with,
          .make = make,
          .cost = cost,
          .linear = always_linear,
          .definition = definition,
          .example = "pool: 3",
          .small_run =
              "1.23 times the bits per byte of `standard`. Queries and keys are scaled to length "
              "one, so that as long as sigma is 1 the largest weight is exp(2) = 7.4 times the "
              "smallest in expectation, and a head must learn a large sigma before it can pick "
              "one of many tokens. The weights are estimates besides, of a random matrix that is "
              "another one in every step."};
}

}  // namespace fovea::attention
