// fovea check ops: gradients, compositions and precisions of every registered op.

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/op_registry.h"
#include "command_line.h"
#include "core/text.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

// As the command line spells it. Everything that check ops can run on this build.
Precision precision_named(const std::string& name) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::fp16_mixed}) {
    if (name == name_of(precision)) return precision;
  }
  return Precision::bf16_mixed;  // the parser let nothing else through
}

// What one case promises in one precision: in fp64 that gradients are right, in the others that
// they agree with fp64; and in fp64 and fp32 that a fused op is its composition.
std::vector<CheckResult> run_checks(const OpCase& op_case, Precision precision) {
  std::vector<CheckResult> results =
      precision == Precision::fp64 ? check_gradient(op_case) : check_precision(op_case, precision);
  if (op_case.composition && (precision == Precision::fp64 || precision == Precision::fp32)) {
    for (CheckResult& result : check_composition(op_case, precision)) {
      results.push_back(std::move(result));
    }
  }
  return results;
}

std::vector<const OpSpec*> chosen_ops(const std::vector<std::string>& names) {
  std::vector<const OpSpec*> chosen;
  std::vector<std::string> known;
  for (const OpSpec& spec : op_specs()) {
    known.emplace_back(spec.name);
    const bool asked = std::find(names.begin(), names.end(), spec.name) != names.end();
    if (names.empty() || asked) chosen.push_back(&spec);
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest(name, known);
    throw ConfigError(
        cat("fovea check ops: there is no op '", name, "'; ",
            near.empty() ? "fovea list ops names them" : cat("did you mean ", near, "?")));
  }
  return chosen;
}

// Counts, and what to say of each failure.
struct Verdict {
  std::int64_t passed = 0, failed = 0;
  std::vector<std::string> failures;  // JSON objects
};

void check_case(const OpSpec& spec, const OpCase& op_case, Precision precision, Output& out,
                Verdict& verdict) {
  for (const CheckResult& result : run_checks(op_case, precision)) {
    if (result.passed()) {
      ++verdict.passed;
      continue;
    }
    ++verdict.failed;
    out.line(cat("FAILED ", spec.name, " (", op_case.name, ") ", name_of(precision), ": ",
                 result.what, " is off by ", rounded(result.error, 2), ", allowed ",
                 rounded(result.bound, 2)));
    train::JsonObject failure;
    failure.add("op", spec.name).add("case", op_case.name).add("precision", name_of(precision));
    failure.add("what", result.what).add("error", result.error).add("bound", result.bound);
    verdict.failures.push_back(failure.str());
  }
}

}  // namespace

ExitCode check_ops(const Arguments& arguments, Output& out) {
  const std::vector<std::string> precisions = {"fp64", "fp32", "fp16-mixed", "bf16-mixed"};
  std::vector<std::string> names;
  std::string asked;
  CommandLine line(
      "check ops",
      "Checks ops: gradients in fp64 by central differences, the other precisions against "
      "fp64, fused ops against their composition.");
  line.rest("NAME", names, "ops to check (default: all)")
      .choice("--precision", asked, precisions, "only this one (default: all)");
  if (!line.parse(arguments, out)) return ExitCode::ok;

  Verdict verdict;
  for (const OpSpec* spec : chosen_ops(names)) {
    const std::int64_t failed_before = verdict.failed, passed_before = verdict.passed;
    for (const OpCase& op_case : spec->cases()) {
      for (const std::string& precision : precisions) {
        if (!asked.empty() && precision != asked) continue;
        check_case(*spec, op_case, precision_named(precision), out, verdict);
      }
    }
    if (verdict.failed == failed_before) {
      out.line(cat("ok     ", spec->name, ": ", verdict.passed - passed_before, " checks"));
    }
  }
  out.line(cat(verdict.passed, " checks passed, ", verdict.failed, " failed"));
  out.record().add("passed", verdict.passed).add("failed", verdict.failed);
  out.record().raw("failures", cat("[", join(verdict.failures, ","), "]"));
  return verdict.failed == 0 ? ExitCode::ok : ExitCode::failed;
}

}  // namespace fovea::apps
