#include "core/log.h"

#include <memory>
#include <mutex>
#include <set>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::log {

namespace {

struct State {
  std::mutex mutex;
  std::set<std::string> seen;
  std::shared_ptr<spdlog::sinks::stderr_sink_mt> console =
      std::make_shared<spdlog::sinks::stderr_sink_mt>();
  spdlog::logger logger{"fovea", console};
  State() {
    console->set_pattern("%v");
    console->set_level(spdlog::level::info);
    logger.set_level(spdlog::level::debug);
  }
};

// One of the two process-wide things of the design (the other: one persistent allocator a device).
State& state() {
  static State instance;
  return instance;
}

}  // namespace

void info(std::string_view message) {
  state().logger.info("{}", message);
}

void warn(std::string_view message) {
  state().logger.warn("warning: {}", message);
}

void error(std::string_view message) {
  state().logger.error("error: {}", message);
}

void warn_once(const std::string& message) {
  State& s = state();
  {
    const std::lock_guard lock(s.mutex);
    if (!s.seen.insert(message).second) return;
  }
  warn(message);
}

void line(std::string_view text) {
  state().logger.info("{}", text);
}

// The console has no levels below info.
void note(std::string_view message) {
  state().logger.debug("{}", message);
}

void to_file(const std::string& path) {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, false);
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    state().logger.sinks().push_back(std::move(file));
    state().logger.flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& e) {
    throw IoError(cat(path, ": the log file cannot be opened: ", e.what()));
  }
}

void console(bool enabled) {
  state().console->set_level(enabled ? spdlog::level::info : spdlog::level::err);
}

void flush() {
  state().logger.flush();
}

}  // namespace fovea::log
