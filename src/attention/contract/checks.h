#pragma once
// The checks, by what they hold fixed. Each takes a form of the method (causal, bidirectional or
// cross) as a Trial and adds rows.

#include <span>

#include "attention/contract.h"
#include "attention/contract/trial.h"

namespace fovea::attention::contract {

class Report {
 public:
  explicit Report(std::vector<ContractRow>& rows) : rows_(rows) {}
  void form(std::string name) { form_ = std::move(name); }
  void family(std::string name) { family_ = std::move(name); }
  void add(const std::string& check, double value, double bound, std::string note = "");
  void skip(const std::string& check, std::string why);
  void fail(const std::string& check, std::string why);

 private:
  void add_row(const std::string& check, ContractRow row);

  std::vector<ContractRow>& rows_;
  std::string form_, family_;
};

struct Check {
  const char* name;
  const char* meaning;
  // Whether the form promises it; `check` stays empty.
  ContractPromise (*promise)(const Trial& form);
  void (*run)(const Trial& form, Report& report);
};
std::span<const Check> all_checks();

void check_gradients(const Trial& form, Report& report);  // against central differences
void check_dense(const Trial& form, Report& report);      // against exact attention, the definition
void check_alibi(const Trial& form, Report& report);
void check_lengths(const Trial& form, Report& report);
void check_mass(const Trial& form, Report& report);
void check_order(const Trial& form, Report& report);
void check_stress(const Trial& form, Report& report);
void check_precision(const Trial& form, Report& report);  // 16 bit against f64
void check_causality(const Trial& form, Report& report);
void check_padding(const Trial& form, Report& report);  // padding, empty rows
void check_segments(const Trial& form, Report& report);
void check_independence(const Trial& form, Report& report);  // samples, heads
void check_determinism(const Trial& form, Report& report);   // threads, repeats
void check_resume(const Trial& form, Report& report);        // parameters and buffers are all state
void check_decode(const Trial& form, Report& report);
void check_cost(const Trial& form, Report& report);    // formula against the meta count
void check_growth(const Trial& form, Report& report);  // memory and FLOPs against N
// Not of one form: what the capabilities promise is built, what they lack is refused. Options that
// somebody `chose` may be refused where a method's own are not.
void check_refusals(const AttentionSpec& spec, const config::Node& options, bool chose,
                    Report& report);

}  // namespace fovea::attention::contract
