#include "attention/contract.h"

#include "attention/contract/checks.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/text.h"

namespace fovea::attention {

namespace contract {

void Report::add_row(const std::string& check, ContractRow row) {
  row.check = cat(form_, ": ", check);
  row.family = family_;
  rows_.push_back(std::move(row));
}

void Report::add(const std::string& check, double value, double bound, std::string note) {
  add_row(check,
          {.passed = value <= bound, .value = value, .bound = bound, .note = std::move(note)});
}

void Report::skip(const std::string& check, std::string why) {
  add_row(check, {.applicable = false, .note = std::move(why)});
}

void Report::fail(const std::string& check, std::string why) {
  add_row(check, {.passed = false, .note = std::move(why)});
}

namespace {

constexpr ContractCheck kRefusals{
    "refuse", "What the capabilities promise is built, what they lack is refused."};

// The spec's example under `options`, complete.
config::Node chosen_options(const AttentionSpec& spec, const config::Node& options) {
  config::Node chosen = config::parse(spec.example, "the spec's example");
  if (chosen.is_null()) chosen = config::Node::map({}, options.place());
  for (const auto& [key, value] : options.entries())
    chosen.set(key, value);
  return config::complete(chosen, spec.options, "model.attention");
}

// The forms a method has; a grouped-head trial wherever it may.
std::vector<std::pair<std::string_view, Trial>> forms_of(const AttentionSpec& spec,
                                                         const config::Node& options) {
  Trial base{.spec = &spec, .options = options};
  if (spec.caps.gqa) base.heads = 4;
  std::vector<std::pair<std::string_view, Trial>> forms;
  const auto form = [&](std::string_view name, bool causal, bool cross) {
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

void run_check(const Check& check, const Trial& form, Report& report) {
  report.family(check.name);
  const ContractPromise promise = check.promise(form);
  if (!promise.in_form) return;
  if (!promise.promised) return report.skip(check.name, std::string(promise.why));
  try {
    check.run(form, report);
  } catch (const std::exception& error) {
    report.fail(check.name, error.what());
  }
}

}  // namespace

}  // namespace contract

std::vector<ContractRow> check_contract(const AttentionSpec& spec, const config::Node& options,
                                        const std::shared_ptr<contract::Place>& place) {
  std::vector<ContractRow> rows;
  contract::Report report(rows);
  const config::Node chosen = contract::chosen_options(spec, options);
  const AttentionSpec own = with_options(spec, chosen);
  report.form("configuration");
  report.family(std::string(contract::kRefusals.name));
  contract::check_refusals(own, chosen, report);
  for (auto& [name, form] : contract::forms_of(own, chosen)) {
    report.form(std::string(name));
    form.place = place;
    for (const contract::Check& check : contract::all_checks())
      contract::run_check(check, form, report);
  }
  return rows;
}

std::vector<ContractCheck> contract_checks() {
  std::vector<ContractCheck> out = {contract::kRefusals};
  for (const contract::Check& check : contract::all_checks())
    out.push_back({check.name, check.meaning});
  return out;
}

std::vector<ContractForm> contract_promises(const AttentionSpec& spec) {
  std::vector<ContractForm> out;
  const config::Node chosen = contract::chosen_options(spec, {});
  const AttentionSpec own = with_options(spec, chosen);
  for (const auto& [name, form] : contract::forms_of(own, chosen)) {
    ContractForm one{.name = name, .promises = {}};
    for (const contract::Check& check : contract::all_checks()) {
      ContractPromise promise = check.promise(form);
      promise.check = check.name;
      one.promises.push_back(promise);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace fovea::attention
