// fovea eval: the metrics of a checkpoint.

#include <string>
#include <vector>

#include "command_line.h"
#include "core/text.h"
#include "train/evaluator.h"
#include "verbs/verbs.h"

namespace fovea::apps {

ExitCode eval(const Arguments& arguments, Output& out) {
  std::string path, split = "validation";
  std::vector<std::string> overrides;
  int threads = 0;
  CommandLine line(
      "eval",
      "Evaluates a checkpoint, or the newest one of a run folder, with the settings it was "
      "trained with.");
  line.required("RUN|CHECKPOINT", path, "a run folder, or a checkpoint in its ckpt/")
      .rest("key=value", overrides, "settings to change, such as data.path or eval.max_batches")
      .choice("--split", split, {"validation", "test"}, "which data (default validation)")
      .option("--threads", threads, 1, "CPU threads (train.threads); results do not depend on it");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  require_assignments("eval", overrides);
  if (threads > 0) overrides.push_back(cat("train.threads=", threads));

  const train::EvaluateResult result = train::evaluate(
      path, overrides, split == "test" ? train::Split::test : train::Split::validation);
  out.line(cat(result.checkpoint, ", step ", result.step, ", ", result.examples, " examples of ",
               result.split));
  train::JsonObject metrics;
  for (const auto& [name, value] : result.metrics) {
    out.line(cat("  ", name, " ", rounded(value, 6)));
    metrics.add(name, value);
  }
  out.record().add("checkpoint", result.checkpoint).add("step", result.step);
  out.record().add("split", result.split).add("examples", result.examples);
  out.record().raw("metrics", metrics.str());
  return ExitCode::ok;
}

}  // namespace fovea::apps
