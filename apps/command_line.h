#pragma once
// One verb's arguments: declared, parsed, and explained by --help. The parsing library stays in
// command_line.cpp.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace fovea::apps {

class CommandLine {
 public:
  // `usage` stands behind "fovea " in --help: "train". `summary` is one sentence.
  CommandLine(std::string_view usage, std::string_view summary);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Everything is bound by reference and must outlive parse(). Positionals are taken in their
  // order.
  CommandLine& required(const std::string& name, std::string& into, const std::string& meaning);
  CommandLine& rest(const std::string& name, std::vector<std::string>& into,
                    const std::string& meaning);
  CommandLine& flag(const std::string& name, bool& into, const std::string& meaning);
  CommandLine& option(const std::string& name, std::string& into, const std::string& meaning);
  CommandLine& option(const std::string& name, int& into, int least, const std::string& meaning);
  // A finite number in [least, most]; `most` may be infinite.
  CommandLine& option(const std::string& name, double& into, double least, double most,
                      const std::string& meaning);
  // May be given several times, with one value each time.
  CommandLine& repeated(const std::string& name, std::vector<std::string>& into,
                        const std::string& meaning);
  CommandLine& choice(const std::string& name, std::string& into,
                      const std::vector<std::string>& allowed, const std::string& meaning);

  // False: --help was asked for and printed, and the verb has nothing more to do. Throws
  // ConfigError that names the verb and, for an unknown option, the nearest one.
  bool parse(const std::vector<std::string>& arguments, Output& out);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// Throws ConfigError if an argument is not of the form key=value.
void require_assignments(std::string_view verb, const std::vector<std::string>& arguments);

}  // namespace fovea::apps
