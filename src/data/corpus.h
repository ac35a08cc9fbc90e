#pragma once
// Text files as one run of bytes per split.

#include <cstdint>
#include <string>
#include <vector>

#include "data/example.h"

namespace fovea::data {

struct Document {
  std::string path;
  std::int64_t begin = 0;  // first byte in Corpus::bytes; the next document's begin ends it
};

// The clean bytes of a split, files one behind the other in bytewise order of their relative paths
// with nothing in between (a separator would be a byte that is in no file). Clean: without a UTF-8
// byte order mark at the start of a file, and with LF for CR LF. Bits per byte count clean bytes.
struct Corpus {
  Split split = Split::train;
  std::string bytes;
  std::vector<Document> documents;
  std::int64_t byte_order_marks = 0, carriage_returns = 0;  // removed, before the files were split

  // `path` is a file, or a folder of which every regular file counts, at any depth. Names that
  // begin with a dot are skipped; links are followed, but no folder is entered twice. A folder with
  // a folder train/ is split by folder (the layout of PG-19): train/, validation/ (or valid/,
  // val/), test/, and nothing else is read. Otherwise, and if there is train/ but no validation/,
  // validation is the last floor(val_fraction x clean bytes) bytes of every file and train the
  // rest. There is a test split only as a folder. Throws IoError: nothing there, no file, an empty
  // split, no permission, and files that are not plain text (compressed, UTF-16 or UTF-32, binary).
  static Corpus load(const std::string& path, Split split, double val_fraction);

  std::string summary() const;
};

}  // namespace fovea::data
