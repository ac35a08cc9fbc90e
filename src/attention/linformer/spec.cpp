// Linformer's options, refusals and cost.

#include <algorithm>

#include "attention/exact/exact_operator.h"
#include "attention/length_option.h"
#include "attention/linformer/linformer.h"
#include "attention/option_error.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

constexpr config::Option kOptions[] = {
    {"rank", config::Type::integer, "256", "[1, inf)",
     "Slots R that keys and values are compressed to; the causal mode block has slots of its own."},
    {"max_len", config::Type::integer, "", "[1, inf)",
     "The longest sequence, the columns of the maps E and F; at least model.block_size, which is "
     "the default."},
    {"share", config::Type::choice, "kv", "none | headwise | kv | layer",
     "Which E and F are one: none a pair for every key/value head, headwise a pair for every "
     "layer, kv one E = F for every layer, layer one E = F for the model."},
    {"causal_mode", config::Type::choice, "forbid", "forbid | block | prefix",
     "The causal form: block compresses complete blocks and attends exactly in the own one, prefix "
     "compresses the tokens so far anew at every position. Bidirectional models ignore it."},
    {"block", config::Type::integer, "128", "[1, inf)", "Tokens of a block of causal_mode: block."},
    {"block_rank", config::Type::integer, "32", "[1, inf)", "Slots of a block."},
    {"window_blocks", config::Type::integer, "0", "[0, inf)",
     "Earlier blocks that are attended exactly too, and then not compressed."},
    {"renormalise", config::Type::boolean, "false", "",
     "Divide a slot by the share of its weights that lies on valid tokens; bidirectional only."},
    kScaleOption,
};

constexpr Capabilities kCapabilities{
    .causal = true,
    .bidirectional = true,
    .cross = true,
    .padding = true,
    .segments = false,
    .bias = false,
    .dropout = true,
    .any_length = false,
    .decode = true,
    .convex = false,
    .any_width = false,
    .note =
        "a slot mixes positions, so packed segments and biases by position have no meaning; "
        "causal models need causal_mode block or prefix",
};

LinformerShare share_of(const std::string& name) {
  if (name == "none") return LinformerShare::none;
  if (name == "headwise") return LinformerShare::headwise;
  return name == "kv" ? LinformerShare::kv : LinformerShare::layer;
}

LinformerSettings settings_of(const AttentionConfig& config, const config::Node& options) {
  LinformerSettings out;
  out.rank = options.get_int("rank");
  out.max_len = whole_length_option(config, options, "max_len");
  out.share = share_of(options.get_string("share"));
  out.block = options.get_int("block");
  out.block_rank = options.get_int("block_rank");
  out.window_blocks = options.get_int("window_blocks");
  out.renormalise = options.get_bool("renormalise");
  out.scale = options.find("scale") != nullptr ? options.get_number("scale") : 0;
  return out;
}

LinformerForm form_of(const AttentionConfig& config, const config::Node& options) {
  if (!is_causal(config)) return LinformerForm::bidirectional;
  return options.get_string("causal_mode") == "block" ? LinformerForm::block
                                                      : LinformerForm::prefix;
}

// Slots of the block form grow with the tokens.
bool linear(const AttentionConfig& config, const config::Node& options) {
  return form_of(config, options) != LinformerForm::block;
}

Tensor definition(Attention& method, const AttentionConfig& config, const config::Node& options,
                  const AttentionInput& in) {
  return linformer_definition(method, config, settings_of(config, options),
                              form_of(config, options), in);
}

// Layers of share: layer have one E, so they must agree on its size.
void require_shared_size(const AttentionConfig& config, const config::Node& options,
                         const LinformerSettings& settings) {
  if (settings.share != LinformerShare::layer || config.shared == nullptr) return;
  const std::string form = is_causal(config) ? options.get_string("causal_mode")
                           : config.cross    ? "cross"
                                             : "self";
  const bool block = form == "block";
  const auto* const first = config.shared->find(linformer_shared_name(form));
  if (first == nullptr) return;
  const Shape& shape = first->parameter->shape;
  const auto agree = [&](std::string_view key, std::int64_t own, std::int64_t other) {
    if (own == other) return;
    refuse_option(options, key,
                  cat("must be ", other, " as in layer ", first->layer,
                      ": with share: layer all layers have one E"));
  };
  agree(block ? "block_rank" : "rank", block ? settings.block_rank : settings.rank, shape[0]);
  agree(block ? "block" : "max_len", block ? settings.block : settings.max_len, shape[1]);
}

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  const LinformerSettings settings = settings_of(config, options);
  require_shared_size(config, options, settings);
  if (!is_causal(config)) return linformer_bidirectional(config, settings);
  const std::string mode = options.get_string("causal_mode");
  if (mode == "forbid")
    refuse_option(options, "causal_mode",
                  "the model is causal: every slot sums over all positions, so an output would "
                  "depend on later tokens; choose block or prefix");
  if (settings.renormalise)
    refuse_option(options, "renormalise", "belongs to the bidirectional form alone");
  return mode == "block" ? linformer_block(config, settings) : linformer_prefix(config, settings);
}

// Multiply-adds of attention over `pairs` and of compressing `products` elements, as FLOPs.
Cost cost_of(const AttentionConfig& config, double pairs, double tiled, double compressed) {
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  Cost out;
  out.useful_forward = 2 * h * pairs * (d + dv) + 2 * hk * compressed * (d + dv);
  out.useful_backward = 2 * h * pairs * (3 * d + 2 * dv) + 4 * hk * compressed * (d + dv);
  out.executed_forward = 2 * h * tiled * (d + dv) + 2 * hk * compressed * (d + dv);
  out.executed_backward = 2 * h * tiled * (3 * d + 2 * dv) + 4 * hk * compressed * (d + dv);
  return out;
}

// The products of the two causal cores: inside chunks, with the state, and those that make states.
Cost prefix_cost(const AttentionConfig& config, double n, double rank) {
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  const double chunk = std::min(static_cast<double>(kLinformerChunk), n);
  const double inside = n * chunk * (d + 2 * rank + dv), state = n * rank * (d + dv);
  Cost out;
  out.useful_forward = 2 * h * (inside + state) + 2 * hk * state;
  // With factors of m and p features: chunk by chunk 3 m + 2 p, and four products with states.
  out.useful_backward = 2 * h * n * chunk * (3 * d + 5 * rank + 2 * dv) + 4 * (h + hk) * state;
  out.executed_forward = out.useful_forward;
  out.executed_backward = out.useful_backward;
  return out;
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const LinformerSettings settings = settings_of(config, options);
  const auto n = static_cast<double>(queries), m = static_cast<double>(keys),
             rank = static_cast<double>(settings.rank);
  const bool by_block = options.get_string("causal_mode") == "block";
  Cost out;
  if (!is_causal(config)) {
    out = cost_of(config, n * rank, n * rank, m * rank);
  } else if (by_block) {
    const BlockPairs pairs = linformer_block_pairs(settings, queries);
    const std::int64_t complete =
        pairs.slots > 0 ? queries / settings.block * settings.block * settings.block_rank : 0;
    out = cost_of(config, pairs.local + pairs.slots, pairs.tiled_local + pairs.tiled_slots,
                  static_cast<double>(complete));
  } else {
    out = prefix_cost(config, n, rank);
  }
  const double h = config.n_head, hk = config.n_kv_head;
  const double tokens = (h * n + hk * m) * (config.qk_dim + config.v_dim);
  const double weights = is_causal(config) && !by_block ? 6 * h * n * rank : 0;
  out.bytes_forward = 2 * tokens + 4 * h * n + 2 * rank * m + weights;
  out.bytes_backward = 4 * tokens + 2 * h * n * config.v_dim + 8 * h * n + 6 * rank * m + weights;
  return out;
}

}  // namespace

AttentionSpec linformer_attention() {
  return {.name = "linformer",
          .summary = "Softmax attention over R learned combinations of all keys and values.",
          .source = "Wang et al. 2020, arXiv:2006.04768, eq. 7; the causal modes are ours",
          .options = kOptions,
          .caps = kCapabilities,
          .make = make,
          .cost = cost,
          .linear = linear,
          .longest = longest_by_max_len,
          .definition = definition,
          .example = "{rank: 16, causal_mode: block, block: 16, block_rank: 4}",
          .small_run =
              "1.24 times the bits per byte of `standard` with `causal_mode: prefix`. A key "
              "reaches a query only in sums over all tokens so far, weighted by columns of E and "
              "F that belong to absolute positions: copying the byte before must be learned for "
              "every position anew."};
}

}  // namespace fovea::attention
