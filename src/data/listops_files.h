#pragma once
// ListOps as files: Long Range Arena's and the original's tables, and writing the former.

#include <cstdint>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/example.h"
#include "data/existing.h"
#include "data/listops_expression.h"

namespace fovea::data::listops {

// Expressions with their values, one behind the other.
struct Table {
  std::vector<std::uint8_t> tokens;
  std::vector<std::uint64_t> ends;  // of each expression in tokens
  std::vector<std::uint8_t> values;
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};

// Where a split is: a file, and whether only a part of its examples belongs to it.
struct Place {
  std::string file;
  bool by_fraction = false;  // the file has no split: the tail is held out
};

// `path` is a file, or a folder with basic_train.tsv, basic_val.tsv and basic_test.tsv (each also
// with .gz), perhaps in [lra_release/[lra_release/]]listops-1000/ below it. A file alone has no
// test split. Throws IoError that lists what was looked for and what is there.
Place find_split(const std::string& path, Split split);

// All examples of a file, plain or gzip; LF or CRLF; fields perhaps in double quotes. Either
//   EXPRESSION<TAB>LABEL, behind a first line "Source<TAB>Target", which may be absent (Long Range
//   Arena), or
//   LABEL<TAB>EXPRESSION (the original).
// Throws IoError with file and line: no tab, a label that is no digit or not the expression's
// value, what parse() refuses, a line of more than 16 MiB, a file without an example.
Table read_table(const std::string& path);
// Whether a file's first bytes look like one of these tables.
bool looks_like_table(const std::string& path);

// Writes folder/basic_{train,val,test}.tsv as Long Range Arena's generator does: a header, CRLF,
// round brackets. The folder is made if it is not there; each file appears whole or not at all.
// Throws ConfigError as Generator does; IoError if a file exists and may not be replaced.
void make_files(const ListOpsConfig& config, std::uint64_t seed, int threads,
                const std::string& folder, Existing existing = Existing::refuse);

}  // namespace fovea::data::listops
