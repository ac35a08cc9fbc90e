// Sparse Transformer: a local factor and a strided or fixed one. baselines.md 5.

#include <cstdlib>
#include <string>

#include "attention/exact/cost.h"
#include "attention/exact/exact_method.h"
#include "attention/registry.h"
#include "attention/sparse_transformer/pattern.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"pattern", config::Type::choice, "fixed", "fixed | strided",
     "fixed: a token's own block, and the last columns of every block. strided: the last tokens, "
     "and every block-th one."},
    {"block", config::Type::integer, "128", "[1, 1048576]",
     "Length of a block, or the stride; about the root of the sequence's length."},
    {"columns", config::Type::integer, "32", "[1, 1048576]",
     "fixed: the columns at the end of a block that all see, at most a block."},
    {"combine", config::Type::choice, "heads", "heads | union | layers | fixed_subblocks",
     "heads: even heads are local, odd ones far. union: every head is both. layers: even layers "
     "are local, odd ones far. fixed_subblocks: every head is local and sees one group of "
     "columns."},
    {"granularity", config::Type::integer, "32", "[1, 1048576]",
     "fixed_subblocks: columns of a group."},
    {"groups", config::Type::integer, "", "[1, 1048576]",
     "fixed_subblocks: groups, counted from a block's end; by default as many as fit."},
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

std::unique_ptr<Attention> make_sparse_transformer(const AttentionConfig& config,
                                                   const config::Node& options) {
  const SparseFactors factors(config, options);
  return std::make_unique<ExactMethod>(config, exact_choice(options), factors.pattern(),
                                       factors.orders());
}

Cost sparse_transformer_cost(const AttentionConfig& config, const config::Node& options,
                             std::int64_t queries, std::int64_t keys) {
  const SparseFactors factors(config, options);
  const PlanShape shape{1, config.n_head, config.n_kv_head, queries, keys, config.causal};
  return exact_cost(config, queries, keys, factors.pairs(queries, keys),
                    factors.tiled_pairs(shape));
}

// The table of baselines.md 5.
Tensor definition(Attention& /*method*/, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  const std::string combine = options.get_string("combine");
  const bool strided = options.get_string("pattern") == "strided";
  const std::int64_t l = options.get_int("block"), wide = options.get_int("granularity"),
                     groups =
                         options.find("groups") != nullptr ? options.get_int("groups") : l / wide,
                     before = in.k.size(2) - in.q.size(2);
  return exact_by_pairs(config, options, in, [&](const Pair& pair) {
    const std::int64_t i = pair.query + before, j = pair.key, column = j % l;
    const bool local = strided ? std::abs(i - j) < l : i / l == j / l;
    if (combine == "fixed_subblocks") {
      const std::int64_t end = l - pair.head % groups * wide;
      return local || (column >= end - wide && column < end);
    }
    const bool far = strided ? (i - j) % l == 0 : column >= l - options.get_int("columns");
    if (combine == "union" || (combine == "heads" && config.n_head == 1)) return local || far;
    return (combine == "heads" ? pair.head : config.layer) % 2 == 0 ? local : far;
  });
}

}  // namespace

AttentionSpec sparse_transformer_attention() {
  return {.name = "sparse_transformer",
          .summary = "Exact attention over a local and a strided or fixed pattern of keys.",
          .source =
              "Child et al. 2019, arXiv:1904.10509, section 4, and its released code; the "
              "bidirectional form is ours",
          .options = kOptions,
          .caps = kCapabilities,
          .make = make_sparse_transformer,
          .cost = sparse_transformer_cost,
          .definition = definition,
          .dense_when = "{block: ${max_len}, columns: ${max_len}}",
          .example = "{block: 4, columns: 2}"};
}

}  // namespace fovea::attention
