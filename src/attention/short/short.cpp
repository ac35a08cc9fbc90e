// Short embeddings: exact attention with narrower heads. baselines.md 3.

#include "attention/exact/cost.h"
#include "attention/exact/exact_method.h"
#include "attention/option_error.h"
#include "attention/registry.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"dim", config::Type::integer, "", "[1, 4096]",
     "Width of a head, at most the model's; must be given."},
    {"mode", config::Type::choice, "full", "full | qk_only",
     "What is narrow: queries, keys and values, or queries and keys only."},
    kExactKernelOption,
    kScaleOption,
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
    .unordered = true,
};

int dim_of(const config::Node& options) {
  if (options.find("dim") == nullptr) refuse_option(options, "dim", "it is the width of a head");
  return static_cast<int>(options.get_int("dim"));
}

// The heads as they are, where `config` has the model's.
AttentionConfig narrowed(AttentionConfig config, const config::Node& options) {
  config.qk_dim = dim_of(options);
  if (options.get_string("mode") == "full") config.v_dim = config.qk_dim;
  return config;
}

std::vector<ProjectionSpec> short_projections(const AttentionConfig& config,
                                              const config::Node& options) {
  const AttentionConfig narrow = narrowed(config, options);
  if (narrow.qk_dim > config.qk_dim) {
    refuse_option(options, "dim", cat("must be at most the head width (", config.qk_dim, ")"));
  }
  return standard_projections(narrow);
}

std::unique_ptr<Attention> make_short(const AttentionConfig& config, const config::Node& options) {
  dim_of(options);
  return std::make_unique<ExactMethod>(config, exact_choice(options));
}

Cost short_cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
                std::int64_t keys) {
  return dense_cost(narrowed(config, options), exact_choice(options), queries, keys);
}

}  // namespace

AttentionSpec short_attention() {
  return {.name = "short",
          .alias = "short_embedding",
          .summary = "Exact attention with narrower heads, of which there are as many.",
          .source = "the control \"short embedding\" of SFA; baselines.md 3",
          .options = kOptions,
          .caps = kCapabilities,
          .caps_with = exact_capabilities,
          .projections = short_projections,
          .make = make_short,
          .cost = short_cost,
          .definition = exact_definition,
          .example = "dim: 4"};
}

}  // namespace fovea::attention
