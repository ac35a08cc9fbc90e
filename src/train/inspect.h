#pragma once
// Recognises what train and data write and read, and sums it up: what the verb `inspect` calls.

#include <string>

namespace fovea::train {

struct Inspection {
  std::string kind;  // "checkpoint", "run folder", "safetensors", "config", "text"
  std::string text;  // for people, lines
  std::string json;  // an object for programs
};

// Looks at a file or folder, verifying what can be verified. Throws one error that says what is
// wrong and where: ConfigError for a config (exit code 2), CheckpointError for checkpoints and run
// folders (7), IoError for everything else (3).
Inspection inspect(const std::string& path);

}  // namespace fovea::train
