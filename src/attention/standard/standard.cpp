// Exact softmax attention, tiled or materialised. baselines.md 2.

#include <algorithm>
#include <cmath>

#include "attention/alibi.h"
#include "attention/real_tokens.h"
#include "attention/registry.h"
#include "attention/standard/key_value_cache.h"
#include "autograd/ops/elementwise.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/attention_scores.h"
#include "kernels/basic.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"kernel", config::Type::choice, "auto", "auto | tiled | tiled! | materialised | materialised!",
     "How it is computed; auto is tiled, but on a GPU materialised for heads wider than 256. With "
     "! "
     "a kernel that does not apply is an error."},
    {"scale", config::Type::number, "", "(0, inf)",
     "Of the scores; by default 1 / sqrt(width of a query head)."},
};

constexpr Capabilities kCapabilities{
    .causal = true,
    .bidirectional = true,
    .cross = true,
    .padding = true,
    .segments = true,
    .bias = true,
    .dropout = true,
    .exact = true,
    .decode = true,
};

enum class Kernel { tiled, materialised };

Kernel kernel_of(const config::Node& options) {
  return options.get_string("kernel").starts_with("materialised") ? Kernel::materialised
                                                                  : Kernel::tiled;
}

class Standard final : public Attention {
 public:
  Standard(const AttentionConfig& config, const config::Node& options)
      : config_(config),
        kernel_(kernel_of(options)),
        replaced_on_cuda_(kernel_ == Kernel::tiled && options.get_string("kernel") != "tiled!" &&
                          std::max(config.qk_dim, config.v_dim) > kWidestTiledOnCuda),
        scale_(options.find("scale") != nullptr ? options.get_number("scale") : 0) {}

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    AttentionMask mask = mask_for(ctx, in.q);
    mask.causal = config_.causal && !config_.cross;
    mask.key_valid = in.key_valid;
    mask.query_valid = in.query_valid;
    mask.query_segments = in.segments;
    mask.key_segments = in.key_segments;
    mask.dropout = config_.dropout;
    mask.dropout_key = ctx.key(cat(path(), ".dropout"));
    return attend(ctx, in.q, in.k, in.v, in.bias, mask);
  }

  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override {
    if (!config_.causal || config_.cross) return nullptr;
    return std::make_unique<KeyValueCache>(config_, batch, max_length, ctx.compute(), ctx.device);
  }

  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override;

  std::string kernel() const override {
    return kernel_ == Kernel::tiled ? "tiled" : "materialised";
  }
  std::string refused() const override {
    if (!replaced_on_cuda_) return {};
    return cat("on a GPU materialised: its tiled kernels end at heads of width ",
               kWidestTiledOnCuda);
  }

 private:
  AttentionOutput attend(Ctx& ctx, const Var& q, const Var& k, const Var& v, const Var& bias,
                         const AttentionMask& mask) const {
    const bool tiled =
        kernel_ == Kernel::tiled && !(replaced_on_cuda_ && ctx.device.acts_as_cuda());
    const AttentionResult r = tiled ? flash_attention(ctx, q, k, v, bias, mask)
                                    : reference_attention(ctx, q, k, v, bias, mask);
    return {.o = r.o, .lse = r.lse};
  }
  AttentionMask mask_for(Ctx& ctx, const Var& q) {
    AttentionMask mask;
    mask.scale = scale_;
    if (config_.position != Position::alibi) return mask;
    if (!slopes_.defined() || slopes_.dtype() != acc_of(q.dtype()) ||
        !(slopes_.device() == ctx.device)) {
      slopes_ = Tensor::from(alibi_slopes(config_.n_head), {config_.n_head}, acc_of(q.dtype()))
                    .to(ctx.device, ctx.stream);
    }
    mask.alibi_slopes = slopes_;
    return mask;
  }

  AttentionConfig config_;
  Kernel kernel_;
  bool replaced_on_cuda_;
  double scale_;
  Tensor slopes_;  // of ALiBi, made once for each dtype and device
};

// Samples of one length decode together. Others one by one, each against its own past, so that a
// sample's bits do not depend on its company.
AttentionOutput Standard::step(Ctx& ctx, DecodeState& state, const AttentionInput& in) {
  auto& cache = dynamic_cast<KeyValueCache&>(state);
  const std::vector<std::int64_t> counts = real_tokens(ctx, in);
  cache.append(ctx, in.k.value(), in.v.value(), counts);
  const std::vector<std::int64_t>& lengths = cache.lengths();
  AttentionMask mask = mask_for(ctx, in.q);
  mask.causal = true;
  const std::int64_t batch = in.q.size(0), tokens = in.q.size(2);
  const auto uniform = [&](const std::vector<std::int64_t>& v, std::int64_t n) {
    return std::all_of(v.begin(), v.end(), [n](std::int64_t x) { return x == n; });
  };
  if (uniform(counts, tokens) && uniform(lengths, cache.length())) {
    const Tensor keys = cache.keys().slice(2, 0, cache.length());
    const Tensor values = cache.values().slice(2, 0, cache.length());
    return attend(ctx, in.q, Var(keys), Var(values), Var(), mask);
  }
  const Tensor o =
      ctx.zeros({batch, tokens, in.q.size(1), config_.v_dim}, in.q.dtype()).permute({0, 2, 1, 3});
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t count = counts[static_cast<std::size_t>(b)],
                       length = lengths[static_cast<std::size_t>(b)];
    if (count == 0) continue;
    const auto sample = [&](const Tensor& x, std::int64_t n) {
      return x.slice(0, b, b + 1).slice(2, 0, n);
    };
    const AttentionOutput one =
        attend(ctx, Var(sample(in.q.value(), count)), Var(sample(cache.keys(), length)),
               Var(sample(cache.values(), length)), Var(), mask);
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), sample(o, count).view(), one.o.view()));
  }
  return {.o = Var(o)};
}

// Pairs in the 64 x 64 tiles that causality does not hide whole.
double tiled_pairs(std::int64_t queries, std::int64_t keys, bool causal) {
  constexpr std::int64_t kTile = 64;
  double pairs = 0;
  for (std::int64_t first = 0; first < queries; first += kTile) {
    const std::int64_t rows = std::min(kTile, queries - first);
    const std::int64_t last_key = causal ? first + rows - 1 + keys - queries : keys - 1;
    const std::int64_t columns = std::clamp<std::int64_t>((last_key / kTile + 1) * kTile, 0, keys);
    pairs += static_cast<double>(rows) * static_cast<double>(last_key < 0 ? 0 : columns);
  }
  return pairs;
}

Cost standard_cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
                   std::int64_t keys) {
  const bool causal = config.causal && !config.cross;
  const auto n = static_cast<double>(queries), m = static_cast<double>(keys);
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  const double pairs = 2 * h * visible_pairs(n, m, causal);
  Cost cost;
  cost.useful_forward = pairs * (d + dv);
  cost.useful_backward = pairs * (3 * d + 2 * dv);
  const double tokens = h * n * (d + dv) + hk * m * (d + dv);
  cost.bytes_forward = 2 * tokens + 4 * h * n;
  cost.bytes_backward = 4 * tokens + 2 * h * n * dv + 8 * h * n;
  if (kernel_of(options) == Kernel::tiled) {
    const double executed = 2 * h * tiled_pairs(queries, keys, causal);
    cost.executed_forward = executed * (d + dv);
    cost.executed_backward = executed * (3 * d + 2 * dv);
  } else {
    cost.executed_forward = cost.useful_forward;
    cost.executed_backward = pairs * (2 * d + 3 * dv);  // scores are stored, dP is formed twice
    cost.bytes_forward += 4 * h * n * m;
    cost.bytes_backward += 4 * h * n * m;
  }
  return cost;
}

std::unique_ptr<Attention> make_standard(const AttentionConfig& config,
                                         const config::Node& options) {
  return std::make_unique<Standard>(config, options);
}

}  // namespace

AttentionSpec standard_attention() {
  return {
      .name = "standard",
      .alias = "exact",
      .summary = "Exact softmax attention, in tiles with an online softmax, or materialised.",
      .source =
          "Vaswani et al. 2017, arXiv:1706.03762, eq. 1; tiles: Dao et al. 2022, arXiv:2205.14135",
      .options = kOptions,
      .caps = kCapabilities,
      .make = make_standard,
      .cost = standard_cost};
}

}  // namespace fovea::attention
