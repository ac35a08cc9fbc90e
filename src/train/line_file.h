#pragma once
// A file of lines that only grows, and whose committed beginning is known by length and hash.

#include <cstdint>
#include <string>
#include <string_view>

#include "data/hash.h"

namespace fovea::train {

// The first `bytes` bytes of a file. The default: nothing.
struct FileMark {
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;  // of them; not looked at when there are none
};

class LineFile {
 public:
  // Opens or creates the file and cuts it to its committed beginning. Throws CheckpointError if the
  // file is shorter than that or begins differently; IoError if it cannot be opened.
  LineFile(const std::string& path, const FileMark& committed);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Adds the text and a newline. Throws IoError naming the path (a full disk), also if another file
  // has the name now, or none: what is written would be lost.
  void append(std::string_view line);
  // Brings everything to the disk. Throws the same.
  void sync();
  FileMark mark() const { return {bytes_, hash_.value()}; }

 private:
  void require_named() const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  data::Xxh3 hash_;
};

}  // namespace fovea::train
