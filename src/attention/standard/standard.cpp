// Exact softmax attention, tiled or materialised. baselines.md 2.

#include "attention/exact/cost.h"
#include "attention/exact/exact_method.h"
#include "attention/registry.h"
#include "kernels/attention_scores.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {kExactKernelOption, kScaleOption, kSoftcapOption};

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
    .unordered = true,
};

std::unique_ptr<Attention> make_standard(const AttentionConfig& config,
                                         const config::Node& options) {
  return std::make_unique<ExactMethod>(config, exact_choice(options));
}

Cost standard_cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
                   std::int64_t keys) {
  return dense_cost(config, exact_choice(options), queries, keys);
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
      .caps_with = exact_capabilities,
      .make = make_standard,
      .cost = standard_cost,
      .definition = exact_definition};
}

}  // namespace fovea::attention
