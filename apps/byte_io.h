#pragma once
// Bytes in and out of a verb, exactly as they are.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.h"
#include "data/text_reader.h"

namespace fovea::apps {

// A file (unpacked if it is gzip), a pipe or device by its path, or standard input as "-".
class ByteInput {
 public:
  explicit ByteInput(const std::string& path);  // throws IoError
  ~ByteInput();
  ByteInput(const ByteInput&) = delete;
  ByteInput& operator=(const ByteInput&) = delete;

  const std::string& name() const { return name_; }
  // Replaces `chunk` by what comes next, as soon as there is something. False at the end. Throws
  // IoError.
  bool read(std::string& chunk);

 private:
  std::string name_;
  std::unique_ptr<data::ByteReader> file_;
  int descriptor_ = -1;  // of what is no regular file
};

// Standard output, or a file that is replaced as a whole (ReplacedFile) once everything is written.
class ByteOutput {
 public:
  // "": standard output. Throws IoError.
  explicit ByteOutput(const std::string& path);

  // False: whoever read standard output went away, and nothing more needs to be made. Throws
  // IoError.
  bool write(std::string_view bytes);
  // Hands on what is buffered; write() buffers.
  bool flush();
  // Everything is written. Throws IoError.
  void finish();

 private:
  std::optional<ReplacedFile> replaced_;
  std::optional<OutputFile> file_;
  std::string buffer_;
  bool closed_ = false;
};

}  // namespace fovea::apps
