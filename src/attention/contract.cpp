#include "attention/contract.h"

#include "attention/contract/checks.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/text.h"

namespace fovea::attention {

namespace contract {

void Report::add(const std::string& check, double value, double bound, std::string note) {
  rows_.push_back({cat(form_, ": ", check), true, value <= bound, value, bound, std::move(note)});
}

void Report::skip(const std::string& check, std::string why) {
  rows_.push_back({cat(form_, ": ", check), false, true, 0, 0, std::move(why)});
}

namespace {

struct Check {
  const char* name;
  void (*run)(const Trial&, Report&);
};

constexpr Check kChecks[] = {
    {"gradient", check_gradients},
    {"dense", check_dense},
    {"ALiBi", check_alibi},
    {"values", check_values},
    {"precision", check_precision},
    {"causality", check_causality},
    {"padding", check_padding},
    {"segments", check_segments},
    {"independence", check_independence},
    {"determinism", check_determinism},
    {"decode", check_decode},
    {"cost", check_cost},
};

// The forms a method has; a grouped-head trial wherever it may.
std::vector<std::pair<std::string, Trial>> forms_of(const AttentionSpec& spec,
                                                    const config::Node& options) {
  Trial base{.spec = &spec, .options = options};
  if (spec.caps.gqa) base.heads = 4;
  std::vector<std::pair<std::string, Trial>> forms;
  const auto form = [&](const char* name, bool causal, bool cross) {
    Trial trial = base;
    trial.causal = causal;
    trial.cross = cross;
    if (cross) trial.queries = 7;
    forms.emplace_back(name, trial);
  };
  if (spec.caps.bidirectional) form("bidirectional", false, false);
  if (spec.caps.causal) form("causal", true, false);
  if (spec.caps.cross) form("cross", false, true);
  return forms;
}

}  // namespace

}  // namespace contract

std::vector<ContractRow> check_contract(const AttentionSpec& spec, const config::Node& options) {
  using contract::Report;
  std::vector<ContractRow> rows;
  Report report(rows);
  config::Node chosen = config::parse(spec.example, "the spec's example");
  if (chosen.is_null()) chosen = config::Node::map({}, options.place());
  for (const auto& [key, value] : options.entries())
    chosen.set(key, value);
  const AttentionSpec own =
      with_options(spec, config::complete(chosen, spec.options, "model.attention"));
  report.form("configuration");
  contract::check_refusals(own, chosen, report);
  for (const auto& [name, form] : contract::forms_of(own, chosen)) {
    report.form(name);
    for (const contract::Check& check : contract::kChecks) {
      try {
        check.run(form, report);
      } catch (const std::exception& error) {
        rows.push_back({cat(name, ": ", check.name), true, false, 0, 0, error.what()});
      }
    }
  }
  return rows;
}

}  // namespace fovea::attention
