#pragma once
// SPA's options, typed, and the sizes that follow from them. Source: spa.md 1.2, 1.3.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "attention/spa/pattern.h"
#include "kernels/learned_mask.h"

namespace fovea::attention::spa {

// What S acts on: each head of a layer (one S, or one a key/value head), all heads side by side
// before they are cut, or all heads as one with a single attention map.
enum class Scope { layer, head, model, single };
// Where S comes from: a fixed pattern, a parameter, or a parameter under a learned mask.
enum class Origin { fixed, given, learned };
// What the factor g_h = 2 sigmoid(theta_h) of a head multiplies; spa.md 1.7.
enum class Gate { none, output, score, proj, logit, blend };

// How S is learned; steps are optimizer steps. Source: spa.md 1.6.
struct LearnChoice {
  enum class Regrow { none, grad, random };
  MaskRule::Kind mode = MaskRule::Kind::straight;
  double lambda0 = 1e-5;            // of the expected number of entries
  std::optional<double> tau;        // fixed; else a schedule
  double tau_min = 0.1;             // where it ends
  bool tau_linear = false;          // falls by steps of one size, not by factors
  std::optional<double> tau_steps;  // until it ends; else 0.8 of the run
  double rho = 0.8;                 // sparsity aimed at
  std::int64_t prune_every = 100;   // 0: never
  std::optional<double> t0, t1;     // where sparsity rises; else the warm-up and half the run
  std::int64_t min_per_row = 0;
  bool dense_shadow = true;
  Regrow regrow = Regrow::none;
  double regrow_fraction = 0.3;      // of the active entries at first
  std::optional<double> regrow_end;  // where it is 0; else 0.75 of the run
  bool decays = false;               // weight decay of W

  // Whether z is drawn from logits.
  bool draws() const { return mode != MaskRule::Kind::magnitude; }
  // The chance that an entry stays at first.
  double first_density() const {
    if (!draws()) return 1;
    return prune_every > 0 ? 0.5 : 1 - rho;
  }
};

struct Settings {
  Origin origin = Origin::fixed;
  Scope scope = Scope::layer;
  Gate gate = Gate::none;
  FeatureMap::Site site = FeatureMap::Site::before_rope;
  PatternChoice pattern;  // of one matrix; its sizes also where the origin is another
  LearnChoice learn;
  int matrices = 1;              // of S: Hk for scope head, else 1
  int q_heads = 1, k_heads = 1;  // behind S
  int width = 0;                 // of such a head, that of the blend included
  int v_dim = 0;                 // of such a head
  double scale = 0;              // alpha
  // Scope head with d' of their own: of each key/value head, others are filled up with empty
  // columns; and what makes alpha that of a query head's true width. Empty: all are alike.
  std::vector<int> widths;
  std::vector<double> head_scales;

  // The shape of S, W, G and M.
  Shape shape() const {
    if (scope == Scope::head) return {matrices, pattern.in, pattern.out};
    return {pattern.in, pattern.out};
  }
  // Masks of their own for each key/value head, of one W and G.
  bool shifts() const { return gate == Gate::logit; }
  bool has_theta() const { return gate != Gate::none && gate != Gate::logit; }
};

std::string percent(double share);  // "12.5 %"

std::span<const config::Option> option_table();
// Throws ConfigError for sizes that do not fit the pattern, and choices that do not go together; an
// over-complete S is warned of, once.
Settings read_settings(const AttentionConfig& config, const config::Node& options);
// How S would be learned; `options` complete.
LearnChoice read_learn(const config::Node& options);
// The options that these choices leave without effect though they are set, a sentence each.
std::vector<std::string> idle_options(const Settings& settings, const AttentionConfig& config,
                                      const config::Node& options);
// The operator behind S.
AttentionConfig behind(const AttentionConfig& config, const Settings& settings);
// What the options leave of the method's capabilities.
Capabilities capabilities_with(Capabilities caps, const config::Node& options);

}  // namespace fovea::attention::spa
