#include "command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>

#include "core/text.h"

namespace fovea::apps {

struct CommandLine::Parser {
  std::string usage;
  CLI::App app;
  bool json = false;
  std::vector<std::string> options{"--help", "--json"};

  Parser(std::string_view name, std::string_view summary)
      : usage(cat("fovea ", name)), app(std::string(summary), usage) {
    app.add_flag("--json", json, "print one JSON record on stdout instead of text");
    app.allow_windows_style_options(false);
  }

  // An argument that nobody expected, and what may have been meant.
  [[noreturn]] void reject(const std::string& argument) const {
    std::string message = cat(usage, ": unexpected argument '", argument, "'");
    if (argument.rfind("--", 0) == 0) {
      const std::string name = argument.substr(0, argument.find('='));
      const std::string near = nearest(name, options);
      if (!near.empty()) {
        message += cat("; did you mean ", near, "?");
      } else if (argument.find('=') != std::string::npos) {
        message += cat("; settings are given without dashes: ", argument.substr(2));
      }
    }
    throw ConfigError(message);
  }

  // CLI11 would take the next argument as the value of "--option=".
  void require_values(const std::vector<std::string>& arguments) const {
    for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
      const std::string& argument = arguments[i];
      const std::string name = argument.substr(0, argument.find('='));
      const CLI::Option* option = name.starts_with("--") ? app.get_option_no_throw(name) : nullptr;
      if (option == nullptr) continue;
      if (name.size() + 1 == argument.size()) {
        throw ConfigError(cat(usage, ": ", argument, " has no value (", usage, " --help)"));
      }
      if (name == argument && option->get_items_expected_max() > 0) ++i;  // its value
    }
  }
};

CommandLine::CommandLine(std::string_view usage, std::string_view summary)
    : parser_(std::make_unique<Parser>(usage, summary)) {}
CommandLine::~CommandLine() = default;

CommandLine& CommandLine::required(const std::string& name, std::string& into,
                                   const std::string& meaning) {
  parser_->app.add_option(name, into, meaning)->required()->option_text(" ");
  return *this;
}

CommandLine& CommandLine::rest(const std::string& name, std::vector<std::string>& into,
                               const std::string& meaning) {
  parser_->app.add_option(name, into, meaning)->option_text("...");
  return *this;
}

CommandLine& CommandLine::flag(const std::string& name, bool& into, const std::string& meaning) {
  parser_->app.add_flag(name, into, meaning);
  parser_->options.push_back(name);
  return *this;
}

CommandLine& CommandLine::option(const std::string& name, std::string& into,
                                 const std::string& meaning) {
  parser_->app.add_option(name, into, meaning)->option_text("TEXT");
  parser_->options.push_back(name);
  return *this;
}

CommandLine& CommandLine::option(const std::string& name, int& into, int least,
                                 const std::string& meaning) {
  const auto check = [least](const std::string& text) {
    int value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value >= least;
    return good ? std::string() : cat("'", text, "' is not a whole number of at least ", least);
  };
  parser_->app.add_option(name, into, meaning)->option_text("N")->check(check);
  parser_->options.push_back(name);
  return *this;
}

CommandLine& CommandLine::option(const std::string& name, double& into, double least, double most,
                                 const std::string& meaning) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    const bool number = error == std::errc() && at == end && std::isfinite(value);
    if (number && value >= least && value <= most) return std::string();
    return cat(
        "'", text, "' is not a number ",
        std::isfinite(most) ? cat("between ", least, " and ", most) : cat("of at least ", least));
  };
  parser_->app.add_option(name, into, meaning)->option_text("X")->check(check);
  parser_->options.push_back(name);
  return *this;
}

CommandLine& CommandLine::repeated(const std::string& name, std::vector<std::string>& into,
                                   const std::string& meaning) {
  parser_->app.add_option(name, into, meaning)
      ->option_text("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  parser_->options.push_back(name);
  return *this;
}

CommandLine& CommandLine::choice(const std::string& name, std::string& into,
                                 const std::vector<std::string>& allowed,
                                 const std::string& meaning) {
  const auto check = [allowed](const std::string& text) {
    const bool good = std::find(allowed.begin(), allowed.end(), text) != allowed.end();
    return good ? std::string() : cat("'", text, "' is none of ", join(allowed, ", "));
  };
  parser_->app.add_option(name, into, meaning)->option_text(join(allowed, "|"))->check(check);
  parser_->options.push_back(name);
  return *this;
}

bool CommandLine::parse(const std::vector<std::string>& arguments, Output& out) {
  CLI::App& app = parser_->app;
  parser_->require_values(arguments);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return true;
  } catch (const CLI::CallForHelp&) {
    const std::string text = app.help();
    out.line(text);
    out.record().add("help", text);
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = app.remaining();
    if (!extras.empty()) parser_->reject(extras.front());
    throw;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(cat(parser_->usage, ": ", error.what(), " (", parser_->usage, " --help)"));
  }
}

void require_assignments(std::string_view verb, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError(cat("fovea ", verb, ": '", argument, "' is not of the form key=value"));
    }
  }
}

}  // namespace fovea::apps
