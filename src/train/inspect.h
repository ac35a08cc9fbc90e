#pragma once
// Recognises what train and data write and read, and sums it up: what the verb `inspect` calls.

#include <string>

namespace fovea::train {

struct Inspection {
  std::string
      kind;  // "config", "checkpoint", "run folder", "model", "safetensors", "tokenizer",
             // "data", "text", "listops", "JSON" or "JSON lines"; "folder": several of these
  std::string text;   // for people, lines
  std::string json;   // an object for programs
  std::string fault;  // of a run folder: what is wrong with its newest checkpoint though an older
                      // one is whole, one line; else ""
};

// Looks at a file or folder, verifying what can be verified: of texts, tokens and JSON every byte.
// Nothing is taken into memory whole but JSON documents of at most 64 MiB, tokenizers and configs.
// Throws one error of one line that says what is wrong, where and why: ConfigError for a config
// (exit code 2), CheckpointError for checkpoints, run folders and models of other programs (7),
// IoError for everything else (3).
Inspection inspect(const std::string& path);

// The first line of an error that lists several things, and how many more there are.
std::string one_line(const std::string& what);

}  // namespace fovea::train
