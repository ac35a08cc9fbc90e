#pragma once
// The checks, by what they hold fixed. Each takes a form of the method (causal, bidirectional or
// cross) as a Trial and adds rows.

#include "attention/contract.h"
#include "attention/contract/trial.h"

namespace fovea::attention::contract {

class Report {
 public:
  explicit Report(std::vector<ContractRow>& rows) : rows_(rows) {}
  void form(std::string name) { form_ = std::move(name); }
  void add(const std::string& check, double value, double bound, std::string note = "");
  void skip(const std::string& check, std::string why);

 private:
  std::vector<ContractRow>& rows_;
  std::string form_;
};

void check_gradients(const Trial& form, Report& report);  // against central differences
void check_dense(const Trial& form, Report& report);      // against exact attention
void check_alibi(const Trial& form, Report& report);
void check_values(const Trial& form, Report& report);     // row mass, permutation, large scores
void check_precision(const Trial& form, Report& report);  // 16 bit against f64
void check_causality(const Trial& form, Report& report);
void check_padding(const Trial& form, Report& report);  // padding, empty rows
void check_segments(const Trial& form, Report& report);
void check_independence(const Trial& form, Report& report);  // samples, heads
void check_determinism(const Trial& form, Report& report);   // threads, repeats
void check_decode(const Trial& form, Report& report);
void check_cost(const Trial& form, Report& report);  // formula against the meta count
// Not of one form: what the capabilities promise is built, what they lack is refused.
void check_refusals(const AttentionSpec& spec, const config::Node& options, Report& report);

}  // namespace fovea::attention::contract
