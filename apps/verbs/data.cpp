// fovea data: making data sets, preparing and looking into those of others.

#include <string>
#include <vector>

#include "command_line.h"
#include "core/text.h"
#include "data/mqar.h"
#include "data/source.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

ExitCode data_list(const Arguments& arguments, Output& out) {
  CommandLine line("data list", "Lists the kinds of data that data.kind may name.");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  std::vector<std::string> entries;
  for (const std::string& kind : data::source_kinds()) {
    out.line(kind);
    entries.push_back(train::json_string(kind));
  }
  out.record().raw("kinds", cat("[", join(entries, ","), "]"));
  return ExitCode::ok;
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
                  overwrite ? data::Existing::replace : data::Existing::refuse);
  out.line(cat("Wrote ", examples, " examples to ", path, "."));
  out.record().add("path", path).add("examples", examples);
  return ExitCode::ok;
}

ExitCode data_make(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"mqar", "OUT", "associative recall as JSON lines", make_mqar},
  };
  return run_verb("fovea data make", verbs, arguments, out);
}

}  // namespace

ExitCode data(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"list", "", "the kinds of data that data.kind may name", data_list},
      {"make", "mqar OUT", "write a generated data set to a file", data_make},
      {"prepare", "SRC --out DIR", "tokenise texts once, into memory-mapped shards", data_prepare},
      {"inspect", "DIR|FILE", "what is in prepared data, token files or texts", data_inspect},
  };
  return run_verb("fovea data", verbs, arguments, out);
}

}  // namespace fovea::apps
