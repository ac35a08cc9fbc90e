// fovea eval: the metrics of a checkpoint.

#include <string>
#include <vector>

#include "command_line.h"
#include "core/text.h"
#include "train/evaluate.h"
#include "verbs/verbs.h"
#include "world_options.h"

namespace fovea::apps {

ExitCode eval(const Arguments& arguments, Output& out) {
  std::string path, split;
  train::EvaluateOptions options;
  std::vector<std::string> overrides;
  int threads = 0;
  CommandLine line("eval",
                   "Evaluates a checkpoint, the newest one of a run folder, or a model of another "
                   "program, with the settings it was trained with.");
  line.required("MODEL", path,
                "a run folder, a checkpoint in its ckpt/, a Hugging Face folder or a llama2.c .bin")
      .rest("key=value", overrides,
            "settings to change, such as data.path, data.split or eval.stride")
      .choice("--split", split, {"train", "validation", "test"},
              "the same as data.split (default validation)")
      .option("--losses", options.losses,
              "writes the loss of every scored token to this safetensors file")
      .flag("--per-document", options.per_document, "lists the score of every document")
      .option("--threads", threads, 1, "CPU threads (train.threads); results do not depend on it");
  WorldOptions world;
  world.declare(line);
  if (!line.parse(arguments, out)) return ExitCode::ok;
  world.check("fovea eval");
  require_assignments("eval", overrides);
  if (threads > 0) overrides.push_back(cat("train.threads=", threads));
  if (!split.empty()) overrides.push_back(cat("data.split=", split));

  if (world.launches()) {
    Arguments added;
    if (!world.device().empty()) added.push_back(cat("train.device=", world.device()));
    return world.launch({{"eval"}, arguments, added, {}, {}}, out);
  }

  const train::EvaluateResult result = train::evaluate(path, overrides, options);
  if (!result.first) return ExitCode::ok;
  out.line(cat(result.checkpoint, ", step ", result.step, ", ", result.examples, " examples of ",
               result.split == "all" ? "the whole text" : result.split));
  train::JsonObject metrics;
  for (const auto& [name, value] : result.metrics)
    metrics.add(name, value);
  if (result.text) {
    out.line(train::text_evaluation_table(*result.text));
  } else {
    for (const auto& [name, value] : result.metrics)
      out.line(cat("  ", name, " ", rounded(value, 6)));
  }
  out.record().add("checkpoint", result.checkpoint).add("step", result.step);
  out.record().add("split", result.split).add("examples", result.examples);
  out.record().raw("metrics", metrics.str());
  if (result.text) out.record().raw("text", train::text_evaluation_json(*result.text));
  return ExitCode::ok;
}

}  // namespace fovea::apps
