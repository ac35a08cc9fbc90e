#include "attention/contract.h"

#include <algorithm>

#include "attention/contract/checks.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/error.h"
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

// `options` under those of `example`, complete.
config::Node over(std::string_view example, const AttentionSpec& spec,
                  const config::Node& options) {
  config::Node out = config::Node::map({}, options.place());
  const config::Node own = config::parse(example, "the spec's example");
  for (const auto& [key, value] : own.entries())
    out.set(key, value);
  for (const auto& [key, value] : options.entries())
    out.set(key, value);
  return config::complete(out, spec.options, "model.attention");
}

// A form that a method has: a grouped-head trial wherever it may.
struct Form {
  std::string_view name;
  Trial trial;
  std::string refused = {};  // why it cannot be built with these options
};

std::vector<Form> forms_of(const AttentionSpec& spec, const config::Node& options) {
  Trial base{.spec = &spec, .options = options};
  if (spec.caps.gqa) base.heads = 4;
  std::vector<Form> forms;
  const auto form = [&](std::string_view name, bool causal, bool cross) {
    Trial trial = base;
    trial.causal = causal;
    trial.cross = cross;
    if (cross) trial.queries = 7;
    trial = with_width(trial, trial.qk_dim);
    forms.push_back({name, trial, refusal_of(trial)});
  };
  if (spec.caps.bidirectional) form("bidirectional", false, false);
  if (spec.caps.causal) form("causal", true, false);
  if (spec.caps.cross) form("cross", false, true);
  return forms;
}

bool any_built(const std::vector<Form>& forms) {
  return std::any_of(forms.begin(), forms.end(), [](const Form& f) { return f.refused.empty(); });
}

// A method under options, which its forms point to.
struct Chosen {
  config::Node options;
  AttentionSpec spec;
  std::vector<Form> forms;
  Chosen(std::string_view example, const AttentionSpec& of, const config::Node& given)
      : options(over(example, of, given)),
        spec(with_options(of, options)),
        forms(forms_of(spec, options)) {}
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

// The options over the spec's example, or alone where they do not go with that.
std::unique_ptr<Chosen> chosen(const AttentionSpec& spec, const config::Node& options) {
  auto out = std::make_unique<Chosen>(spec.example, spec, options);
  if (any_built(out->forms) || options.entries().empty()) return out;
  auto alone = std::make_unique<Chosen>("", spec, options);
  if (any_built(alone->forms)) return alone;
  throw ConfigError(alone->forms.front().refused);
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
  const auto own = contract::chosen(spec, options);
  report.form("configuration");
  report.family(std::string(contract::kRefusals.name));
  const bool chose = !options.entries().empty();
  contract::check_refusals(own->spec, own->options, chose, report);
  for (contract::Form& form : own->forms) {
    report.form(std::string(form.name));
    form.trial.place = place;
    if (!form.refused.empty()) {
      report.family(std::string(contract::kRefusals.name));
      if (chose)
        report.skip("every check", form.refused);
      else
        report.fail("every check", form.refused);
      continue;
    }
    for (const contract::Check& check : contract::all_checks())
      contract::run_check(check, form.trial, report);
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
  const auto own = contract::chosen(spec, {});
  for (const contract::Form& form : own->forms) {
    ContractForm one{.name = form.name, .promises = {}};
    for (const contract::Check& check : contract::all_checks()) {
      ContractPromise promise = check.promise(form.trial);
      promise.check = check.name;
      one.promises.push_back(promise);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace fovea::attention
