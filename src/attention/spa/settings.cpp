#include "attention/spa/settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "attention/option_error.h"
#include "core/log.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

template <class E, std::size_t N>
E one_of(const config::Node& options, const char* key,
         const std::array<std::pair<std::string_view, E>, N>& names) {
  const std::string text = options.get_string(key);
  for (const auto& [name, value] : names) {
    if (name == text) return value;
  }
  refuse_option(options, key, "there is no such choice");
}

std::optional<double> number(const config::Node& options, const char* key) {
  if (options.find(key) == nullptr) return std::nullopt;
  return options.get_number(key);
}

void read_pattern(Settings& to, const AttentionConfig& config, const config::Node& options) {
  constexpr std::array<std::pair<std::string_view, PatternKind>, 9> kKinds{
      {{"random_iid", PatternKind::random_iid},
       {"random_exact", PatternKind::random_exact},
       {"block", PatternKind::block},
       {"banded", PatternKind::banded},
       {"hierarchical", PatternKind::hierarchical},
       {"conv", PatternKind::conv},
       {"identity", PatternKind::identity},
       {"learn", PatternKind::random_exact},
       {"given", PatternKind::random_exact}}};
  const std::string pattern = options.get_string("pattern");
  to.origin = pattern == "learn"   ? Origin::learned
              : pattern == "given" ? Origin::given
                                   : Origin::fixed;
  const bool whole = to.scope == Scope::model || to.scope == Scope::single;
  to.pattern = {.kind = one_of(options, "pattern", kKinds),
                .in = whole ? config.n_head * config.qk_dim : config.qk_dim,
                .out = static_cast<int>(options.get_int("proj_dim")),
                .s = options.get_number("s"),
                .deck = options.get_string("balance") == "deck",
                .b_r = static_cast<int>(options.get_int("b_r")),
                .b_c = static_cast<int>(options.get_int("b_c")),
                .sparsity = options.get_number("sparsity"),
                .bernoulli = options.get_string("block_mode") == "bernoulli",
                .w = static_cast<int>(options.get_int("w")),
                .clip = options.get_bool("clip"),
                .half_band = options.get_bool("w_is_half_band"),
                .levels = static_cast<int>(options.get_int("levels")),
                .gaussian = options.get_string("value_dist") == "gaussian",
                .feature_perm = options.get_bool("feature_perm")};
  if (to.scope == Scope::model && to.pattern.out % config.n_head != 0)
    refuse_option(options, "proj_dim",
                  cat("must be a multiple of the ", config.n_head, " heads that it is cut into"));
  if (to.origin != Origin::fixed || options.find("proj_dims") != nullptr) return;
  if (const std::optional<Misfit> misfit = misfit_of(to.pattern))
    refuse_option(options, misfit->key, misfit->reason);
}

// d' of each key/value head.
void read_widths(Settings& to, const AttentionConfig& config, const config::Node& options) {
  constexpr const char* kKey = "proj_dims";
  if (options.find(kKey) == nullptr) return;
  if (to.scope != Scope::head || to.origin != Origin::fixed)
    refuse_option(options, kKey, "only a fixed pattern of proj_scope head has several widths");
  for (const double width : options.get_numbers(kKey)) {
    if (width != std::floor(width)) refuse_option(options, kKey, "widths are whole numbers");
    to.widths.push_back(static_cast<int>(width));
  }
  if (static_cast<int>(to.widths.size()) != config.n_kv_head)
    refuse_option(options, kKey, cat("there are ", config.n_kv_head, " key/value heads"));
  for (const int width : to.widths) {
    to.pattern.out = width;
    if (const std::optional<Misfit> misfit = misfit_of(to.pattern))
      refuse_option(options, misfit->key == "proj_dim" ? kKey : misfit->key, misfit->reason);
  }
  to.pattern.out = *std::max_element(to.widths.begin(), to.widths.end());
  if (options.get_string("score_scale") != "inv_sqrt_dprime") return;
  const int group = config.n_head / config.n_kv_head;
  for (int h = 0; h < config.n_head; ++h) {
    const double own = to.widths[static_cast<std::size_t>(h / group)];
    to.head_scales.push_back(std::sqrt(to.pattern.out / own));
  }
}

void check_learn(const Settings& s, const config::Node& options) {
  const LearnChoice& learn = s.learn;
  if (learn.t0 && learn.t1 && *learn.t0 > *learn.t1)
    refuse_option(options, "t1", cat("must not lie before t0 (", *learn.t0, ")"));
  if (s.origin == Origin::learned && learn.min_per_row > s.pattern.out)
    refuse_option(options, "min_per_row", cat("S has only ", s.pattern.out, " columns"));
}

void check_gate(const Settings& s, const config::Node& options) {
  const bool whole = s.scope == Scope::model || s.scope == Scope::single;
  if (whole && s.gate != Gate::none && s.gate != Gate::output)
    refuse_option(options, "gate", "heads have no scores of their own under this proj_scope");
  if (s.gate == Gate::logit && (s.origin != Origin::learned || !s.learn.draws()))
    refuse_option(options, "gate",
                  "it shifts the logits of a learned mask: pattern learn, without "
                  "learn_mode magnitude");
}

double scale_of(const Settings& s, const AttentionConfig& config, const config::Node& options,
                int projected) {
  const std::string rule = options.get_string("score_scale");
  if (rule == "value") {
    if (options.find("scale_value") == nullptr)
      refuse_option(options, "scale_value", "score_scale is value");
    return options.get_number("scale_value");
  }
  const int before = s.scope == Scope::single ? config.n_head * config.qk_dim : config.qk_dim;
  return 1 / std::sqrt(static_cast<double>(rule == "inv_sqrt_dk" ? before : projected));
}

}  // namespace

std::string percent(double share) {
  return cat(std::round(1000 * share) / 10, " %");
}

LearnChoice read_learn(const config::Node& options) {
  using Kind = MaskRule::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 4> kModes{
      {{"concrete", Kind::concrete},
       {"concrete_st", Kind::straight},
       {"hard_concrete", Kind::hard_concrete},
       {"magnitude", Kind::magnitude}}};
  using Regrow = LearnChoice::Regrow;
  constexpr std::array<std::pair<std::string_view, Regrow>, 3> kRegrow{
      {{"none", Regrow::none}, {"grad", Regrow::grad}, {"random", Regrow::random}}};
  return {.mode = one_of(options, "learn_mode", kModes),
          .lambda0 = options.get_number("lambda0"),
          .tau = number(options, "tau"),
          .tau_min = options.get_number("tau_min"),
          .tau_linear = options.get_string("tau_schedule") == "linear",
          .tau_steps = number(options, "tau_steps"),
          .rho = options.get_number("rho"),
          .prune_every = options.get_int("prune_every"),
          .t0 = number(options, "t0"),
          .t1 = number(options, "t1"),
          .min_per_row = options.get_int("min_per_row"),
          .dense_shadow = options.get_bool("dense_shadow"),
          .regrow = one_of(options, "regrow", kRegrow),
          .regrow_fraction = options.get_number("regrow_fraction"),
          .regrow_end = number(options, "regrow_end"),
          .decays = options.get_bool("decay")};
}

Settings read_settings(const AttentionConfig& config, const config::Node& options) {
  constexpr std::array<std::pair<std::string_view, Scope>, 4> kScopes{{{"layer", Scope::layer},
                                                                       {"head", Scope::head},
                                                                       {"model", Scope::model},
                                                                       {"single", Scope::single}}};
  constexpr std::array<std::pair<std::string_view, Gate>, 6> kGates{{{"none", Gate::none},
                                                                     {"output", Gate::output},
                                                                     {"score", Gate::score},
                                                                     {"proj", Gate::proj},
                                                                     {"logit", Gate::logit},
                                                                     {"blend", Gate::blend}}};
  Settings out;
  out.scope = one_of(options, "proj_scope", kScopes);
  out.gate = one_of(options, "gate", kGates);
  out.site = options.get_string("rope_site") == "after_proj" ? FeatureMap::Site::before_rope
                                                             : FeatureMap::Site::after_rope;
  read_pattern(out, config, options);
  read_widths(out, config, options);
  out.learn = read_learn(options);
  check_learn(out, options);
  check_gate(out, options);
  const bool one_head = out.scope == Scope::single;
  out.matrices = out.scope == Scope::head ? config.n_kv_head : 1;
  out.q_heads = one_head ? 1 : config.n_head;
  out.k_heads = one_head ? 1 : config.n_kv_head;
  const int projected =
      out.scope == Scope::model ? out.pattern.out / config.n_head : out.pattern.out;
  out.width = projected + (out.gate == Gate::blend ? config.qk_dim : 0);
  out.v_dim = one_head ? config.n_head * config.v_dim : config.v_dim;
  out.scale = scale_of(out, config, options, projected);
  for (const std::string& idle : idle_options(out, config, options))
    log::warn_once(idle);
  if (out.pattern.out > out.pattern.in) {
    log::warn_once(cat("model.attention.proj_dim is ", out.pattern.out, ", more than the ",
                       out.pattern.in,
                       " features that are projected: such an S is over-complete, "
                       "of no use but for ablations, and slower than standard attention"));
  }
  return out;
}

AttentionConfig behind(const AttentionConfig& config, const Settings& settings) {
  AttentionConfig out = config;
  out.n_head = settings.q_heads;
  out.n_kv_head = settings.k_heads;
  out.qk_dim = settings.width;
  out.v_dim = settings.v_dim;
  return out;
}

}  // namespace fovea::attention::spa
