// fovea check attention: a method's contract, or one case of a file.

#include "train/check_attention.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "attention/registry.h"
#include "command_line.h"
#include "config/yaml.h"
#include "core/text.h"
#include "study/attention_slopes.h"
#include "train/this_machine.h"
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

// What a method's rows come to in one column: the worst of them.
std::string cell(const std::vector<attention::ContractRow>& rows, std::string_view family) {
  std::string out = "-";
  for (const attention::ContractRow& row : rows) {
    if (row.family != family || !row.applicable) continue;
    if (!row.passed) return "FAILED";
    out = "ok";
  }
  return out;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

// One line a method, one column a family of checks. Lines of single checks stand below their
// method: those that failed, or all.
class ContractTable {
 public:
  ContractTable(Output& out, bool all_rows) : out_(out), all_rows_(all_rows) {
    std::string head = padded("", kNameWidth);
    for (const attention::ContractCheck& check : checks_)
      head += cat(" ", padded(std::string(check.name), kCellWidth));
    out_.line(head);
  }

  void add(const attention::AttentionSpec& spec, const std::vector<attention::ContractRow>& rows) {
    std::string line = padded(std::string(spec.name), kNameWidth);
    for (const attention::ContractCheck& check : checks_)
      line += cat(" ", padded(cell(rows, check.name), kCellWidth));
    out_.line(line);
    for (const attention::ContractRow& row : rows) {
      json_.push_back(json_of(spec, row));
      if (row.applicable && !row.passed) ++failed_;
      if (all_rows_ || !row.passed) out_.line(cat("  ", text_of(row)));
    }
  }

  ExitCode finish() {
    out_.line(cat(json_.size(), " checks, ", failed_, " failed"));
    out_.record().add("failed", failed_).raw("checks", cat("[", join(json_, ","), "]"));
    return failed_ == 0 ? ExitCode::ok : ExitCode::failed;
  }

 private:
  static constexpr std::size_t kNameWidth = 18, kCellWidth = 6;

  static std::string text_of(const attention::ContractRow& row) {
    const char* verdict = !row.applicable ? "n/a   " : row.passed ? "ok    " : "FAILED";
    const std::string measured =
        row.applicable ? cat("  ", rounded(row.value, 2), " of ", rounded(row.bound, 2), " allowed")
                       : std::string();
    return cat(verdict, " ", row.check, measured, row.note.empty() ? "" : "  ", row.note);
  }
  static std::string json_of(const attention::AttentionSpec& spec,
                             const attention::ContractRow& row) {
    train::JsonObject object;
    object.add("kind", spec.name).add("family", row.family).add("check", row.check);
    object.add("applicable", row.applicable).add("passed", row.passed);
    object.add("value", row.value).add("bound", row.bound);
    return object.add("note", row.note).str();
  }

  Output& out_;
  bool all_rows_;
  std::vector<attention::ContractCheck> checks_ = attention::contract_checks();
  std::vector<std::string> json_;
  std::int64_t failed_ = 0;
};

// What the command line asks of the checks of whole methods.
struct Contracts {
  std::vector<std::string> kinds, settings;
  std::string device;
  bool all_rows = false, slopes = false;
};

std::vector<const attention::AttentionSpec*> methods_of(const Contracts& asked) {
  std::vector<const attention::AttentionSpec*> out;
  for (const std::string& kind : asked.kinds)
    out.push_back(&method(kind));
  if (!out.empty()) return out;
  for (const attention::AttentionSpec& spec : attention::attention_specs())
    out.push_back(&spec);
  return out;
}

// Throws ConfigError where options leave a method that was asked for nothing to measure.
void require_measured(const std::vector<study::AttentionSlope>& slopes) {
  const bool refused = std::all_of(slopes.begin(), slopes.end(), [](const auto& slope) {
    return slope.refused && slope.tokens.empty();
  });
  if (refused && !slopes.empty()) throw ConfigError(slopes.front().stopped);
}

ExitCode check_contracts(const Contracts& asked, Output& out) {
  if (!asked.settings.empty() && asked.kinds.size() != 1) {
    throw ConfigError("fovea check attention: settings belong to one method; name it");
  }
  const std::vector<const attention::AttentionSpec*> methods = methods_of(asked);
  config::Node options;
  config::override_with(options, asked.settings);
  const Device device = train::check_device(asked.device);
  out.record().add("device", name_of(device));
  if (asked.slopes) {
    Stream stream(device, train::threads_of({}));
    std::vector<study::AttentionSlope> slopes;
    for (const attention::AttentionSpec* spec : methods) {
      const std::vector<study::AttentionSlope> found =
          study::attention_slopes(stream, *spec, options);
      if (!asked.kinds.empty()) require_measured(found);
      out.line(study::text_of(found));
      slopes.insert(slopes.end(), found.begin(), found.end());
    }
    out.record().raw("slopes", study::json_of(slopes));
    return ExitCode::ok;
  }
  const auto place =
      device.is_cpu() ? nullptr : std::make_shared<attention::contract::Place>(device);
  ContractTable table(out, asked.all_rows);
  for (const attention::AttentionSpec* spec : methods)
    table.add(*spec, attention::check_contract(*spec, options, place));
  return table.finish();
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
  out.record()
      .add("device", args.device)
      .add("kind", args.kind)
      .add("kernel", result.kernel)
      .add("output", args.output);
  out.record().raw("tensors", cat("[", join(rows, ","), "]"));
  return result.passed() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace

ExitCode check_attention(const Arguments& arguments, Output& out) {
  std::vector<std::string> words;
  Contracts contracts;
  train::CheckFileArgs file;
  CommandLine line(
      "check attention",
      "Tries what attention methods promise: gradients, causality, padding, other lengths, "
      "decoding and more. With --input, runs one method on given tensors instead.");
  line.rest("KIND", words, "methods (default: all); key=value arguments are options of the method")
      .choice("--device", file.device, {"cpu", "cuda"},
              "default cpu; on a GPU the checks compare it with f64 on the CPU")
      .flag("--rows", contracts.all_rows, "a line for every single check, not just those that fail")
      .flag("--slopes", contracts.slopes,
            "instead of checking, times growing sequences and fits how time and memory grow")
      .option("--input", file.input, "safetensors with q, k, v, do, parameters and draws")
      .option("--output", file.output, "where to write o, lse and the gradients")
      .option("--expect", file.expect,
              "safetensors to compare them with; exit code 1 if they differ")
      .choice("--precision", file.precision, {"fp32", "fp64", "tf32", "fp16-mixed", "bf16-mixed"},
              "of --input; default fp32")
      .option("--kernel", file.kernel,
              "of the method's kernels, this one for --input; NAME! allows no other");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  for (const std::string& word : words) {
    (word.find('=') == std::string::npos ? contracts.kinds : contracts.settings).push_back(word);
  }
  if (file.input.empty()) {
    if (!file.output.empty() || !file.expect.empty()) {
      throw ConfigError("fovea check attention: --output and --expect need --input");
    }
    if (file.precision != train::CheckFileArgs().precision || !file.kernel.empty()) {
      throw ConfigError(
          "fovea check attention: --precision and --kernel need --input; what a method promises is "
          "tried in every precision, and kernel=NAME is an option of the method");
    }
    contracts.device = file.device;
    return check_contracts(contracts, out);
  }
  if (contracts.all_rows || contracts.slopes) {
    throw ConfigError("fovea check attention: --rows and --slopes do not go with --input");
  }
  if (contracts.kinds.size() != 1)
    throw ConfigError("fovea check attention: --input needs exactly one KIND");
  file.kind = contracts.kinds.front();
  file.overrides = contracts.settings;
  return check_file(file, out);
}

}  // namespace fovea::apps
