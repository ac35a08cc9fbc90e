// fovea inspect: what a file is and what is in it.

#include "train/inspect.h"

#include <optional>

#include "command_line.h"
#include "study/inspect_study.h"
#include "verbs/verbs.h"

namespace fovea::apps {

ExitCode inspect(const Arguments& arguments, Output& out) {
  std::string path;
  CommandLine line(
      "inspect",
      "Recognises a file or folder and sums it up, or says in a line what is wrong with it: a "
      "config or study (exit code 2), a data file or ledger (3), a checkpoint, run folder or model "
      "(7).");
  line.required("FILE", path,
                "a config, study, study's folder or ledger, checkpoint, run folder, model, "
                "safetensors file, tokenizer, prepared "
                "data, token file, text, gzip, JSON or JSON-lines file");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  const std::optional<train::Inspection> study = study::inspect_study(path);
  const train::Inspection found = study ? *study : train::inspect(path);
  out.line(found.text);
  out.record().add("kind", found.kind).add("path", path).raw("summary", found.json);
  if (!found.fault.empty()) throw CheckpointError(found.fault);
  return ExitCode::ok;
}

}  // namespace fovea::apps
