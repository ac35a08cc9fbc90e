// Which options count under which choices.

#include <algorithm>
#include <array>
#include <set>

#include "attention/spa/settings.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

struct Choice {
  const Settings& settings;
  const AttentionConfig& config;
  const config::Node& options;
  bool is(PatternKind kind) const {
    return settings.origin == Origin::fixed && settings.pattern.kind == kind;
  }
};

// Keys between spaces, whether they count, and what it means that they do not.
struct Rule {
  std::string_view keys;
  bool (*count)(const Choice&);
  std::string_view where;
};

// A key may stand in several rules: the first that it fails speaks.
constexpr std::array kRules = std::to_array<Rule>({
    {"scale_value", [](const Choice& c) { return c.options.get_string("score_scale") == "value"; },
     "where score_scale is not value"},
    {"proj_dim", [](const Choice& c) { return c.settings.widths.empty(); }, "beside proj_dims"},
    {"rope_site", [](const Choice& c) { return c.config.position == Position::rope; },
     "where model.position is not rope"},
    {"s",
     [](const Choice& c) {
       return c.is(PatternKind::random_iid) || c.is(PatternKind::random_exact);
     },
     "where pattern is neither random_iid nor random_exact"},
    {"balance", [](const Choice& c) { return c.is(PatternKind::random_exact); },
     "where pattern is not random_exact"},
    {"b_r b_c sparsity block_mode", [](const Choice& c) { return c.is(PatternKind::block); },
     "where pattern is not block"},
    {"w", [](const Choice& c) { return c.is(PatternKind::banded) || c.is(PatternKind::conv); },
     "where pattern is neither banded nor conv"},
    {"clip w_is_half_band", [](const Choice& c) { return c.is(PatternKind::banded); },
     "where pattern is not banded"},
    {"levels", [](const Choice& c) { return c.is(PatternKind::hierarchical); },
     "where pattern is not hierarchical"},
    {"value_dist feature_perm", [](const Choice& c) { return c.settings.origin == Origin::fixed; },
     "where S is a parameter (pattern learn, given)"},
    {"value_dist", [](const Choice& c) { return !c.is(PatternKind::identity); },
     "where pattern is identity"},
    // Scores do not depend on the order of features, but a rotation behind S takes them in pairs.
    {"feature_perm",
     [](const Choice& c) {
       return !c.is(PatternKind::identity) || (c.config.position == Position::rope &&
                                               c.settings.site == FeatureMap::Site::before_rope);
     },
     "where pattern is identity and no rotation comes behind it"},
    {"decay", [](const Choice& c) { return c.settings.origin != Origin::fixed; },
     "where pattern is neither learn nor given"},
    {"learn_mode lambda0 tau tau_min tau_schedule tau_steps rho prune_every t0 t1 min_per_row "
     "dense_shadow regrow regrow_fraction regrow_end",
     [](const Choice& c) { return c.settings.origin == Origin::learned; },
     "where pattern is not learn"},
    {"lambda0 tau tau_min tau_schedule tau_steps",
     [](const Choice& c) { return c.settings.learn.draws(); },
     "where learn_mode is magnitude, which draws no masks"},
    {"tau_min tau_schedule tau_steps", [](const Choice& c) { return !c.settings.learn.tau; },
     "where tau is given"},
    {"t0 t1 min_per_row dense_shadow regrow regrow_fraction regrow_end",
     [](const Choice& c) { return c.settings.learn.prune_every > 0; },
     "where prune_every is 0, so that nothing is pruned"},
    {"regrow_fraction regrow_end",
     [](const Choice& c) { return c.settings.learn.regrow != LearnChoice::Regrow::none; },
     "where regrow is none"},
});

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Whether an option is another than by default: a run's own configuration has all written down.
bool is_set(const config::Node& options, std::string_view key) {
  static const config::Node defaults =
      config::complete(config::Node(), option_table(), "model.attention");
  const config::Node *value = options.find(key), *usual = defaults.find(key);
  return value != nullptr && (usual == nullptr || value->describe() != usual->describe());
}

}  // namespace

std::vector<std::string> idle_options(const Settings& settings, const AttentionConfig& config,
                                      const config::Node& options) {
  const Choice choice{settings, config, options};
  std::set<std::string_view> told;
  std::vector<std::string> out;
  for (const Rule& rule : kRules) {
    if (rule.count(choice)) continue;
    for (const std::string_view key : words(rule.keys)) {
      if (!is_set(options, key) || !told.insert(key).second) continue;
      out.push_back(cat("model.attention.", key, " has no effect ", rule.where));
    }
  }
  return out;
}

}  // namespace fovea::attention::spa
