#pragma once
// The errors fovea throws. One class per row of the exit-code table; `main` turns them into codes.
// Text format: subject, what happened, the values, what to do if known.

#include <stdexcept>
#include <string>

namespace fovea {

// Process exit codes: the public contract of every verb.
enum class ExitCode : int {
  ok = 0,
  failed = 1,
  usage = 2,
  data = 3,
  non_finite = 4,
  out_of_memory = 5,
  communication = 6,
  checkpoint = 7,
  device = 8,
  stopped = 75,  // a signal asked for a stop; saved, resumable
};

// Base of everything fovea throws on purpose.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The user's YAML or command line. what() starts with file:line:column where there is one.
struct ConfigError : Error {
  explicit ConfigError(const std::string& what) : Error(ExitCode::usage, what) {}
};
// Shapes, dtypes or counts that do not fit together.
struct ShapeError : Error {
  explicit ShapeError(const std::string& what) : Error(ExitCode::failed, what) {}
};
// Device, driver or library call.
struct DeviceError : Error {
  explicit DeviceError(const std::string& what) : Error(ExitCode::device, what) {}
};
// Memory ran out; what() holds the report.
struct OutOfMemory : Error {
  explicit OutOfMemory(const std::string& what) : Error(ExitCode::out_of_memory, what) {}
};
// Files and data: path, record and byte offset in what().
struct IoError : Error {
  explicit IoError(const std::string& what) : Error(ExitCode::data, what) {}
};
// A checkpoint that is missing, torn, of another model or of another schema.
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& what) : Error(ExitCode::checkpoint, what) {}
};
// The run diverged.
struct NumericError : Error {
  explicit NumericError(const std::string& what) : Error(ExitCode::non_finite, what) {}
};
// A peer or the network.
struct CommunicationError : Error {
  explicit CommunicationError(const std::string& what) : Error(ExitCode::communication, what) {}
};

// Prints the failed expression and aborts: our own mistake, never the user's.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace fovea

// Active in every build on the host.
#define FOVEA_ASSERT(expression) \
  ((expression) ? void(0) : ::fovea::assertion_failed(#expression, __FILE__, __LINE__))
