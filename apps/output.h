#pragma once
// What a verb tells its user: lines for people, or one JSON record for programs (--json).

#include <string>
#include <string_view>

#include "core/error.h"
#include "train/json_text.h"

namespace fovea::apps {

class Output {
 public:
  // silent: nothing is printed, as where another rank speaks for this one.
  explicit Output(bool json, bool silent = false) : json_(json), closed_(silent) {}

  bool json() const { return json_; }
  // Prints a line (or several, ending in one newline) on stdout; nothing under --json. A reader who
  // went away is no error: the rest is dropped. Throws IoError for a stdout that cannot be written.
  void line(std::string_view text);
  // The verb's fields of the final record.
  train::JsonObject& record() { return record_; }

  // Under --json, prints {"ok":true,...}, or {"ok":false,"code":N,...}, with the record's fields.
  void finish(ExitCode code);
  // Under --json, prints {"ok":false,"error":{"code":N,"message":...}}, if stdout takes it. Nothing
  // is printed afterwards.
  void fail(ExitCode code, std::string_view message);
  // Under --json, prints the final record of another process, which did the work in this one's
  // place. Nothing is printed afterwards.
  void hand_over(std::string_view record);

 private:
  int print(std::string_view text);  // 0, or why stdout could not be written (errno)
  void print_or_throw(std::string_view text);

  bool json_;
  bool closed_;
  train::JsonObject record_;
};

// A number for people, rounded to so many significant digits.
std::string rounded(double number, int digits);

}  // namespace fovea::apps
