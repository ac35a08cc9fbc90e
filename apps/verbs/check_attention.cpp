// fovea check attention: a method's contract, or one case of a file.

#include "train/check_attention.h"

#include <string>
#include <vector>

#include "attention/contract.h"
#include "attention/registry.h"
#include "command_line.h"
#include "config/yaml.h"
#include "core/text.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

const attention::AttentionSpec& method(const std::string& kind) {
  const attention::AttentionSpec* spec = attention::find_attention(kind);
  if (spec != nullptr) return *spec;
  std::vector<std::string> known;
  for (const attention::AttentionSpec& each : attention::attention_specs())
    known.emplace_back(each.name);
  const std::string near = nearest(kind, known);
  throw ConfigError(
      cat("fovea check attention: there is no attention method '", kind, "'; ",
          near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean ", near, "?")));
}

// What one method promises, each promise tried. Returns how many were broken.
std::int64_t check_method(const attention::AttentionSpec& spec, const config::Node& options,
                          Output& out, std::vector<std::string>& rows) {
  std::int64_t failed = 0;
  for (const attention::ContractRow& row : attention::check_contract(spec, options)) {
    const char* verdict = !row.applicable ? "n/a   " : row.passed ? "ok    " : "FAILED";
    if (row.applicable && !row.passed) ++failed;
    const std::string measured =
        row.applicable ? cat("  ", rounded(row.value, 2), " of ", rounded(row.bound, 2), " allowed")
                       : std::string();
    out.line(cat(verdict, " ", spec.name, " ", row.check, measured, row.note.empty() ? "" : "  ",
                 row.note));
    train::JsonObject object;
    object.add("kind", spec.name).add("check", row.check).add("applicable", row.applicable);
    object.add("passed", row.passed).add("value", row.value).add("bound", row.bound);
    rows.push_back(object.add("note", row.note).str());
  }
  return failed;
}

ExitCode check_contracts(const std::vector<std::string>& kinds,
                         const std::vector<std::string>& settings, Output& out) {
  if (!settings.empty() && kinds.size() != 1) {
    throw ConfigError("fovea check attention: settings belong to one method; name it");
  }
  config::Node options;
  config::override_with(options, settings);
  std::vector<std::string> rows;
  std::int64_t failed = 0;
  if (kinds.empty()) {
    for (const attention::AttentionSpec& spec : attention::attention_specs()) {
      failed += check_method(spec, options, out, rows);
    }
  }
  for (const std::string& kind : kinds)
    failed += check_method(method(kind), options, out, rows);
  out.line(cat(rows.size(), " checks, ", failed, " failed"));
  out.record().add("failed", failed).raw("checks", cat("[", join(rows, ","), "]"));
  return failed == 0 ? ExitCode::ok : ExitCode::failed;
}

// One operator on the tensors of a file.
ExitCode check_file(const train::CheckFileArgs& args, Output& out) {
  if (args.output.empty() && args.expect.empty()) {
    throw ConfigError("fovea check attention: --input needs --output, --expect or both");
  }
  const train::CheckFileResult result = train::check_attention_file(args);
  std::vector<std::string> rows;
  for (const train::CheckFileRow& row : result.rows) {
    out.line(cat(row.passed ? "ok     " : "FAILED ", row.name, "  ", rounded(row.error, 2), " of ",
                 rounded(row.tolerance, 2), " allowed", row.reason.empty() ? "" : "  ",
                 row.reason));
    train::JsonObject object;
    object.add("name", row.name).add("error", row.error).add("tolerance", row.tolerance);
    rows.push_back(object.add("passed", row.passed).add("reason", row.reason).str());
  }
  if (!args.output.empty()) out.line(cat("Wrote ", args.output, ", kernel ", result.kernel, "."));
  out.record().add("kind", args.kind).add("kernel", result.kernel).add("output", args.output);
  out.record().raw("tensors", cat("[", join(rows, ","), "]"));
  return result.passed() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace

ExitCode check_attention(const Arguments& arguments, Output& out) {
  std::vector<std::string> words, kinds;
  train::CheckFileArgs file;
  CommandLine line(
      "check attention",
      "Tries what attention methods promise: gradients, causality, padding, other lengths, "
      "decoding and more. With --input, runs one method on given tensors instead.");
  line.rest("KIND", words, "methods (default: all); key=value arguments are options of the method")
      .option("--input", file.input, "safetensors with q, k, v, do, parameters and draws")
      .option("--output", file.output, "where to write o, lse and the gradients")
      .option("--expect", file.expect,
              "safetensors to compare them with; exit code 1 if they differ")
      .choice("--device", file.device, {"cpu", "cuda"}, "default cpu")
      .choice("--precision", file.precision, {"fp32", "fp64", "tf32", "fp16-mixed", "bf16-mixed"},
              "default fp32")
      .option("--kernel", file.kernel, "of the method's kernels, this one; NAME! allows no other");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  for (const std::string& word : words) {
    (word.find('=') == std::string::npos ? kinds : file.overrides).push_back(word);
  }
  if (file.input.empty()) {
    if (!file.output.empty() || !file.expect.empty()) {
      throw ConfigError("fovea check attention: --output and --expect need --input");
    }
    const train::CheckFileArgs usual;
    if (file.device != usual.device || file.precision != usual.precision || !file.kernel.empty()) {
      throw ConfigError(
          "fovea check attention: --device, --precision and --kernel need --input; what a method "
          "promises is tried on the cpu, in fp64 and fp32");
    }
    return check_contracts(kinds, file.overrides, out);
  }
  if (kinds.size() != 1) throw ConfigError("fovea check attention: --input needs exactly one KIND");
  file.kind = kinds.front();
  return check_file(file, out);
}

}  // namespace fovea::apps
