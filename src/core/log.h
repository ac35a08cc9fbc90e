#pragma once
// The process-wide log: progress and warnings go to stderr and, once opened, to the run's log file.
// Results a program may read (tables, JSON) go to stdout and never through here.

#include <string>
#include <string_view>

namespace fovea::log {

void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);
// Warns the first time `message` is seen in this process, and is silent afterwards.
void warn_once(const std::string& message);
// A line for the console as it stands, without level or time (the step line).
void line(std::string_view text);
// A line for the log file alone.
void note(std::string_view message);
// Also writes everything to `path` (appending) from now on. Throws IoError if it cannot be opened.
void to_file(const std::string& path);
// Only rank 0 speaks on the console; the others write to their files, and only errors besides.
void console(bool enabled);
void flush();

}  // namespace fovea::log
