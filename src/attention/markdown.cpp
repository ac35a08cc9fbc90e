#include <cmath>

#include "attention/contract.h"
#include "attention/registry.h"
#include "config/option.h"
#include "config/yaml.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

// The cost of the documentation's example: one layer of 16 heads of 64, causal where the method is.
std::string cost_row(const AttentionSpec& spec) {
  if (spec.cost == nullptr) return {};
  AttentionConfig config{
      .n_embd = 1024, .n_head = 16, .n_kv_head = 16, .qk_dim = 64, .v_dim = 64, .max_len = 16384};
  config.causal = spec.caps.causal;
  const config::Node options =
      config::complete(config::parse(spec.example, "example"), spec.options, "model.attention");
  std::string out =
      cat("\nCost of one layer with 16 heads of 64", config.causal ? ", causal" : "",
          " (GFLOP a sample, forward):\n\n| tokens | useful | executed |\n|---|---|---|\n");
  for (const std::int64_t tokens : {1024, 4096, 16384}) {
    const Cost cost = spec.cost(config, options, tokens, tokens);
    const auto rounded = [](double flops) { return std::round(flops / 1e7) / 100; };
    out += cat("| ", tokens, " | ", rounded(cost.useful_forward), " | ",
               rounded(cost.executed_forward), " |\n");
  }
  return out;
}

// What `fovea check attention` tries of each form: yes, no with the reason, or "-" where a check
// has nothing to say of a form.
std::string promises(const AttentionSpec& spec) {
  const std::vector<ContractForm> forms = contract_promises(spec);
  std::string out = "\n| check |", line = "\n|---|";
  for (const ContractForm& form : forms) {
    out += cat(" ", form.name, " |");
    line += "---|";
  }
  out += line + "\n";
  for (std::size_t i = 0; i < forms.front().promises.size(); ++i) {
    out += cat("| ", forms.front().promises[i].check, " |");
    for (const ContractForm& form : forms) {
      const ContractPromise& promise = form.promises[i];
      out += !promise.in_form   ? " - |"
             : promise.promised ? " yes |"
                                : cat(" no: ", promise.why, " |");
    }
    out += "\n";
  }
  return out;
}

std::string section(const AttentionSpec& spec) {
  std::vector<std::string> has, lacks;
  for (const auto& [name, set] : flags(spec.caps))
    (set ? has : lacks).emplace_back(name);
  std::string out = cat("\n## ", spec.name, "\n\n", spec.summary, "\n\n");
  if (!spec.alias.empty()) out += cat("Also called `", spec.alias, "`. ");
  out += cat("Source: ", spec.source, ".\n\nHas: ", join(has, ", "), ". Lacks: ", join(lacks, ", "),
             ".\n");
  if (!spec.caps.note.empty()) out += cat("\n", spec.caps.note, "\n");
  if (!spec.dense_when.empty()) out += cat("\nEquals `standard` with `", spec.dense_when, "`.\n");
  if (!spec.small_run.empty())
    out += cat("\nA small run: 200 steps of `configs/zoo/gpt.yaml` end at ", spec.small_run, "\n");
  if (!spec.options.empty()) out += cat("\n", config::markdown(spec.options, "model.attention"));
  return out + cost_row(spec) + promises(spec);
}

}  // namespace

std::string attention_markdown() {
  std::string out =
      "# Attention methods\n\nWritten by `fovea list attention --markdown`; "
      "docs/adding-attention.md "
      "says how to add one. What a method lacks is refused when the configuration is read. "
      "`fovea check attention` tries the following of every method, in each of its forms; the last "
      "table of a method says what it promises.\n\n| check | what is tried |\n|---|---|\n";
  for (const ContractCheck& check : contract_checks())
    out += cat("| ", check.name, " | ", check.meaning, " |\n");
  for (const AttentionSpec& spec : attention_specs())
    out += section(spec);
  return out;
}

}  // namespace fovea::attention
