#pragma once
// A verb, and choosing one by name: `fovea check`, and below it `fovea check ops`.

#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace fovea::apps {

using Arguments = std::vector<std::string>;

// Parses its arguments, prints through `out` and returns the exit code; throws what it cannot do.
struct Verb {
  std::string_view name;
  std::string_view arguments;  // as help shows them
  std::string_view summary;
  ExitCode (*run)(const Arguments& arguments, Output& out);
  // Started as several processes, all of them do it; of another verb, rank 0 alone.
  bool by_all_ranks = false;
};

// Runs the verb that arguments.front() names, with the arguments behind it. `parent` is what stands
// before it: "fovea", "fovea check". --help prints the table; so does a missing name, on stderr and
// with exit code 2. Throws ConfigError for an unknown name, with the nearest.
ExitCode run_verb(std::string_view parent, const std::vector<Verb>& verbs,
                  const Arguments& arguments, Output& out);

// One aligned line a verb.
std::string table_of(const std::vector<Verb>& verbs);

}  // namespace fovea::apps
