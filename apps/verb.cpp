#include "verb.h"

#include <algorithm>
#include <cstdio>

#include "core/text.h"
#include "dist/world.h"

namespace fovea::apps {

std::string table_of(const std::vector<Verb>& verbs) {
  std::size_t width = 0;
  std::vector<std::string> left;
  for (const Verb& verb : verbs) {
    left.push_back(cat("  ", verb.name, verb.arguments.empty() ? "" : " ", verb.arguments));
    width = std::max(width, left.back().size());
  }
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    left[i].resize(width + 2, ' ');
    lines.push_back(left[i] + std::string(verbs[i].summary));
  }
  return join(lines, "\n");
}

ExitCode run_verb(std::string_view parent, const std::vector<Verb>& verbs,
                  const Arguments& arguments, Output& out) {
  const std::string usage = cat("usage: ", parent, " VERB [arguments] [--json] [--help]\n\n",
                                table_of(verbs), "\n\n", parent, " VERB --help explains a verb.");
  const auto is_json = [](const std::string& argument) { return argument == "--json"; };
  const auto name = std::find_if_not(arguments.begin(), arguments.end(), is_json);
  if (name == arguments.end()) {
    std::fprintf(stderr, "%s\n", usage.c_str());
    return ExitCode::usage;
  }
  if (*name == "--help" || *name == "-h") {
    out.line(usage);
    out.record().add("help", usage);
    return ExitCode::ok;
  }
  std::vector<std::string> known;
  for (const Verb& verb : verbs) {
    if (verb.name == *name) {
      if (!verb.by_all_ranks && !dist::is_first_rank()) return ExitCode::ok;
      return verb.run(Arguments(name + 1, arguments.end()), out);
    }
    known.emplace_back(verb.name);
  }
  const std::string near = nearest(*name, known);
  throw ConfigError(
      cat(parent, ": there is no verb '", *name, "'; ",
          near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean ", near, "?")));
}

}  // namespace fovea::apps
