// fovea data make: generated data sets as files.

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "command_line.h"
#include "core/text.h"
#include "data/listops_files.h"
#include "data/mqar.h"
#include "data/niah.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

using data::Existing;

Existing existing(bool overwrite) {
  return overwrite ? Existing::replace : Existing::refuse;
}

ExitCode make_mqar(const Arguments& arguments, Output& out) {
  data::MqarConfig config;
  int seq_len = 64, count = 0, seed = 0;
  std::string split = "train", path;
  bool overwrite = false;
  CommandLine line("data make mqar",
                   "Writes associative-recall examples as JSON lines: those that training sees.");
  line.required("OUT", path, "the file to write")
      .option("--count", count, 1, "examples (default: as many as the split has)")
      .option("--split", split, "train or test (default train)")
      .option("--vocab", config.vocab, 3, cat("ids (default ", config.vocab, ")"))
      .option("--seq-len", seq_len, 4, cat("tokens of an example (default ", seq_len, ")"))
      .option("--pairs", config.pairs, 1, cat("key-value pairs (default ", config.pairs, ")"))
      .option("--seed", seed, 0, "the run's seed (default 0)")
      .flag("--overwrite", overwrite, "replace OUT if it exists");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  const std::int64_t all = split == "test" ? config.test_examples : config.train_examples;
  const std::int64_t examples = count > 0 ? count : all;
  data::make_mqar(config, seq_len, split, examples, static_cast<std::uint64_t>(seed), path,
                  existing(overwrite));
  out.line(cat("Wrote ", examples, " examples to ", path, "."));
  out.record().add("path", path).add("examples", examples);
  return ExitCode::ok;
}

ExitCode make_listops(const Arguments& arguments, Output& out) {
  data::ListOpsConfig config;
  const auto all = [&](std::int64_t count) { return cat("examples (default ", count, ")"); };
  int train = static_cast<int>(config.train_examples),
      validation = static_cast<int>(config.validation_examples),
      test = static_cast<int>(config.test_examples);
  int seed = 0, jobs = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  std::string folder;
  bool overwrite = false;
  CommandLine line(
      "data make listops",
      "Writes ListOps as Long Range Arena's files: DIR/basic_{train,val,test}.tsv, the "
      "examples that a run without data.path sees.");
  line.required("DIR", folder, "the folder to write to; made if it is not there")
      .option("--train", train, 1, all(train))
      .option("--validation", validation, 1, all(validation))
      .option("--test", test, 1, all(test))
      .option("--min-length", config.min_length, 0,
              cat("every expression has more tokens (default ", config.min_length, ")"))
      .option("--max-length", config.max_length, 2,
              cat("every expression has fewer tokens (default ", config.max_length, ")"))
      .option("--max-depth", config.max_depth, 1,
              cat("levels of an expression's tree (default ", config.max_depth, ")"))
      .option("--max-args", config.max_args, 2,
              cat("arguments of an operator (default ", config.max_args, ")"))
      .option("--seed", seed, 0, "the run's seed (default 0)")
      .option("--jobs", jobs, 1, "threads (default: one a core); no bit depends on it")
      .flag("--overwrite", overwrite, "replace the files if they exist");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  config.train_examples = train;
  config.validation_examples = validation;
  config.test_examples = test;
  data::listops::make_files(config, static_cast<std::uint64_t>(seed), jobs, folder,
                            existing(overwrite));
  out.line(cat("Wrote ", train, " training, ", validation, " validation and ", test,
               " test examples to ", folder, "."));
  out.record().add("path", folder).add("train", train).add("validation", validation);
  out.record().add("test", test);
  return ExitCode::ok;
}

ExitCode make_niah(const Arguments& arguments, Output& out) {
  data::NiahConfig config;
  data::NiahSource::Place place{.length = 1024};
  int count = 0, seed = 0;
  std::string split = "train", layout = "elsaa", generator = "corrected", path;
  bool overwrite = false;
  CommandLine line("data make niah",
                   "Writes needles in haystacks as JSON lines: those that a run sees.");
  line.required("OUT", path, "the file to write")
      .option("--count", count, 1, "examples (default: as many as the split has)")
      .choice("--split", split, {"train", "validation", "test"}, "default train")
      .option("--length", place.length, 2, cat("tokens of an example (default ", place.length, ")"))
      .choice("--layout", layout, {"elsaa", "marked"}, "default elsaa")
      .choice("--generator", generator, {"corrected", "reference"},
              "elsaa: reference has the published one's defects")
      .option("--needles", config.needles, 1, "elsaa: pairs of key and value (default 1)")
      .option("--decoys", config.decoys, 0, "marked: needles with other keys (default 0)")
      .option("--depth", place.depth, 0, 1,
              "elsaa, test: where the needles stand, as a share of the fillers (default: drawn)")
      .option("--seed", seed, 0, "the run's seed (default 0)")
      .flag("--overwrite", overwrite, "replace OUT if it exists");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  if (layout == "marked") config.layout = data::NiahLayout::marked;
  if (generator == "reference") config.generator = data::NiahGenerator::reference;
  if (place.depth >= 0 && (split != "test" || layout != "elsaa"))
    throw ConfigError("data make niah: --depth is for --split test of --layout elsaa");
  const std::int64_t all = split == "train"        ? config.train_examples
                           : split == "validation" ? config.validation_examples
                                                   : config.test_examples;
  const std::int64_t examples = count > 0 ? count : all;
  data::make_niah(config, place, split, examples, static_cast<std::uint64_t>(seed), path,
                  existing(overwrite));
  out.line(cat("Wrote ", examples, " examples to ", path, "."));
  out.record().add("path", path).add("examples", examples);
  return ExitCode::ok;
}

}  // namespace

ExitCode data_make(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"listops", "DIR", "ListOps as Long Range Arena's tables", make_listops},
      {"mqar", "OUT", "associative recall as JSON lines", make_mqar},
      {"niah", "OUT", "needles in haystacks as JSON lines", make_niah},
  };
  return run_verb("fovea data make", verbs, arguments, out);
}

}  // namespace fovea::apps
