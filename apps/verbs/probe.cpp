// fovea probe: what SPA's S does to the attention of a trained model.

#include "study/probe.h"

#include <sstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "core/error.h"
#include "core/text.h"
#include "train/this_machine.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

// "0,3": layers.
std::vector<int> layers_of(const std::string& text) {
  std::vector<int> out;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream number(item);
    int layer = 0;
    if (!(number >> layer) || !number.eof() || layer < 0)
      throw ConfigError(cat("fovea probe: --layers is '", text, "', but '", item,
                            "' is no layer: they are numbered from 0"));
    out.push_back(layer);
  }
  return out;
}

}  // namespace

ExitCode probe(const Arguments& arguments, Output& out) {
  study::ProbeAsk ask;
  std::string layers, split, device;
  int example = 0, threads = 0;
  CommandLine line("probe",
                   "Measures on real queries, keys and values of a trained model what a projection "
                   "S does to scores, attention and outputs, beside what SPA's theory claims.");
  line.required("MODEL", ask.tokens.path, "as fovea eval takes it")
      .rest("key=value", ask.tokens.options,
            "options of kind spa for an S drawn anew (pattern=block proj_dim=32 ...); without, the "
            "model's own S, or SPA's defaults where it has none")
      .repeated("--set", ask.tokens.overrides,
                "a setting of the run to change, as data.path=FOLDER")
      .option("--layers", layers, "0,3: these only (default: all)")
      .option("--example", example, 0, "which one of the split (default: 0)")
      .choice("--split", split, {"train", "validation", "test"}, "default: validation")
      .choice("--device", device, {"auto", "cpu", "cuda"}, "where to compute (train.device)")
      .option("--threads", threads, 1, "CPU threads; results do not depend on it")
      .option("--seconds", ask.seconds, 0, 60,
              "timed of each direction and width; 0: none (default: 0.1)")
      .option("--seeds", ask.seeds, 0,
              "S is drawn from for its mean; below 100 it is not checked, 0: none (default: 1000)");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  require_assignments("probe", ask.tokens.options);
  require_assignments("probe", ask.tokens.overrides);
  ask.tokens.layers = layers_of(layers);
  ask.tokens.example = example;
  std::vector<std::string>& settings = ask.tokens.overrides;
  if (threads > 0) settings.push_back(cat("train.threads=", threads));
  if (!split.empty()) settings.push_back(cat("data.split=", split));
  if (!device.empty()) settings.push_back(cat("train.device=", device));
  train::TrainConfig config;
  config.threads = threads;
  config.device = device == "cuda"  ? train::DeviceChoice::cuda
                  : device == "cpu" ? train::DeviceChoice::cpu
                                    : train::DeviceChoice::automatic;
  Stream stream(train::device_of(config), train::threads_of(config));

  const study::ProbeResult result = study::probe(stream, ask);
  out.line(cat(result.run.path, ", step ", result.run.step, ", example ", example, " of ",
               result.run.split, ", ", result.layers.front().speed.dense.queries, " tokens"));
  out.line(study::text_of(result));
  out.record().add("checkpoint", result.run.path).add("step", result.run.step);
  out.record().add("split", result.run.split).add("example", example);
  out.record().add("tokens", result.layers.front().speed.dense.queries);
  out.record().raw("layers", study::layers_json(result)).raw("heads", study::heads_json(result));
  out.record().add("passed", result.passed());
  return result.passed() ? ExitCode::ok : ExitCode::failed;
}

}  // namespace fovea::apps
