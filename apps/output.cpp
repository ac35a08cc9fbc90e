#include "output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/text.h"

namespace fovea::apps {

std::string rounded(double number, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return text;
}

int Output::print(std::string_view text) {
  if (closed_) return 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                       std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (written) return 0;
  closed_ = true;
  return errno == EPIPE ? 0 : errno;
}

void Output::print_or_throw(std::string_view text) {
  const int error = print(text);
  if (error != 0) throw IoError(cat("stdout cannot be written: ", std::strerror(error)));
}

void Output::line(std::string_view text) {
  while (!text.empty() && text.back() == '\n')
    text.remove_suffix(1);
  if (!json_) print_or_throw(text);
}

void Output::finish(ExitCode code) {
  if (!json_) return;
  train::JsonObject verdict;
  verdict.add("ok", code == ExitCode::ok);
  if (code != ExitCode::ok) verdict.add("code", static_cast<int>(code));
  const std::string head = verdict.str(), fields = record_.str();
  // Two objects become one: {"ok":true} and {"step":60} give {"ok":true,"step":60}.
  print_or_throw(fields == "{}" ? head
                                : cat(head.substr(0, head.size() - 1), ",", fields.substr(1)));
}

void Output::fail(ExitCode code, std::string_view message) {
  if (!json_) return;
  train::JsonObject error, whole;
  error.add("code", static_cast<int>(code)).add("message", message);
  print(whole.add("ok", false).raw("error", error.str()).str());
  closed_ = true;
}

void Output::hand_over(std::string_view record) {
  while (!record.empty() && record.back() == '\n')
    record.remove_suffix(1);
  if (!json_) return;
  print_or_throw(record);
  closed_ = true;
}

}  // namespace fovea::apps
