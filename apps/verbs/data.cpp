// fovea data: making data sets, preparing and looking into those of others.

#include <string>
#include <vector>

#include "command_line.h"
#include "core/text.h"
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

}  // namespace

ExitCode data(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"list", "", "the kinds of data that data.kind may name", data_list},
      {"make", "listops|mqar|niah OUT", "write a generated data set to files", data_make},
      {"prepare", "SRC --out DIR", "tokenise texts once, into memory-mapped shards", data_prepare},
      {"inspect", "DIR|FILE", "what is in prepared data, token files or texts", data_inspect},
  };
  return run_verb("fovea data", verbs, arguments, out);
}

}  // namespace fovea::apps
