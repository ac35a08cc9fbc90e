// SPA, Sparse Projection Attention: scores of queries and keys that one small matrix S has made
// narrower. spa.md.

#include "attention/exact/cost.h"
#include "attention/registry.h"
#include "attention/spa/definition.h"
#include "attention/spa/method.h"

namespace fovea::attention {

namespace {

constexpr Capabilities kCapabilities{
    .causal = true,
    .bidirectional = true,
    .cross = true,
    .padding = true,
    .segments = true,
    .bias = true,
    .dropout = true,
    .decode = true,
    .unordered = true,
};

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  return std::make_unique<spa::Spa>(config, spa::read_settings(config, options),
                                    exact_choice(options));
}

// Multiply-adds of S's product for a token, queries and keys.
struct ProjectionWork {
  double query = 0, key = 0;
  ProjectionWork(const AttentionConfig& config, const spa::Settings& s) {
    const double in = s.pattern.in, per_group = in / config.qk_dim;
    const double out = s.scope == spa::Scope::model ? s.pattern.out : s.width;
    query = config.n_head / per_group * in * out;
    key = config.n_kv_head / per_group * in * out;
  }
};

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t keys) {
  const spa::Settings settings = spa::read_settings(config, options);
  Cost out = dense_cost(spa::behind(config, settings), exact_choice(options), queries, keys);
  if (config.folded) return out;
  const ProjectionWork work(config, settings);
  const double tokens =
      static_cast<double>(queries) * work.query + static_cast<double>(keys) * work.key;
  const bool trains = settings.origin != spa::Origin::fixed || settings.has_theta();
  const double forward = 2 * tokens, backward = (trains ? 4 : 2) * tokens;
  out.useful_forward += forward;
  out.executed_forward += forward;
  out.useful_backward += backward;
  out.executed_backward += backward;
  // Wide tokens once more each way.
  const double wide = config.qk_dim * (static_cast<double>(queries) * config.n_head +
                                       static_cast<double>(keys) * config.n_kv_head);
  out.bytes_forward += 2 * wide;
  out.bytes_backward += 4 * wide;
  return out;
}

}  // namespace

AttentionSpec spa_attention() {
  return {.name = "spa",
          .summary =
              "Exact attention between queries and keys that a small sparse matrix, fixed "
              "or learned, makes narrower.",
          .source =
              "SPA, Definition 1, Algorithms 1 and 2; sparse random matrices: Achlioptas "
              "2003; hard concrete: Louizos et al. 2018, arXiv:1712.01312",
          .options = spa::option_table(),
          .caps = kCapabilities,
          .caps_with = spa::capabilities_with,
          .make = make,
          .cost = cost,
          .definition = spa::by_definition,
          .dense_when = "{pattern: identity, proj_dim: ${qk_dim}, score_scale: inv_sqrt_dk}",
          .example = "{proj_dim: 4, s: 2}"};
}

}  // namespace fovea::attention
