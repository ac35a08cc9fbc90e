#pragma once
// What every attention method must keep, tried on the method itself. Driven by its AttentionSpec
// alone: a new method is checked without a line about it. Source: baselines.md 1, 21.

#include <memory>
#include <string>
#include <vector>

#include "attention/registry.h"

namespace fovea::attention {

namespace contract {
struct Place;
}

struct ContractRow {
  std::string check = {};   // "causal: gradient with padding"
  std::string family = {};  // "grad", of contract_checks()
  bool applicable = true;   // false: the method does not promise it; note says what
  bool passed = true;       // value <= bound
  double value = 0, bound = 0;
  std::string note = {};
};

// Runs every check in each form the method has (bidirectional, causal, cross). `options` is a map
// for model.attention, over the spec's example, or alone where they do not go with it; heads are as
// wide as they ask for. A form that cannot be built with them is one row that does not apply.
// Deterministic; about half a second on one core for an exact method. A check that throws is a
// failed row with the message. On a `place` (contract/trial.h; null: the CPU), a GPU as a rule,
// what needs f64 or threads is replaced: fp32 there is compared with f64 on the CPU. All else runs
// there as on the CPU, bits included. Throws ConfigError for options that are wrong, or with which
// no form can be built.
std::vector<ContractRow> check_contract(const AttentionSpec& spec, const config::Node& options = {},
                                        const std::shared_ptr<contract::Place>& place = nullptr);

// The families of checks, in the order in which they run.
struct ContractCheck {
  std::string_view name;  // short: the head of a column
  std::string_view meaning;
};
std::vector<ContractCheck> contract_checks();

// What a method promises in one of its forms, without trying it; refusals are of no form.
struct ContractPromise {
  std::string_view check = {};  // of contract_checks()
  bool in_form = true;          // false: the check says nothing about this form
  bool promised = true;         // false: `why` not
  std::string_view why = {};
};
struct ContractForm {
  std::string_view name;  // "causal"
  std::vector<ContractPromise> promises;
};
std::vector<ContractForm> contract_promises(const AttentionSpec& spec);

}  // namespace fovea::attention
