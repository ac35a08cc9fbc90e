#include "data/corpus.h"

#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/text_files.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The subfolder of `root` that holds a split, or "" if there is none.
std::string folder_of(const std::string& root, Split split) {
  const std::vector<std::string> names =
      split == Split::train        ? std::vector<std::string>{"train"}
      : split == Split::validation ? std::vector<std::string>{"validation", "valid", "val"}
                                   : std::vector<std::string>{"test"};
  std::string found;
  for (const std::string& name : names) {
    const std::string folder = (fs::path(root) / name).string();
    if (!is_folder(folder)) continue;
    if (!found.empty())
      throw IoError(cat(root, ": has both ", found, " and ", folder, "; keep one"));
    found = folder;
  }
  return found;
}

// Where a split's bytes are: all of the files below `root`, or a part of each.
struct Plan {
  std::string root;
  bool by_fraction = false;
};

Plan plan(const std::string& path, Split split) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (path.empty()) throw IoError("data.path is empty; give a text file or a folder of text files");
  if (!fs::exists(status)) {
    throw IoError(cat(path, ": ", code ? code.message() : "does not exist",
                      "; data.path must be a text file or a folder of text files"));
  }
  const bool split_by_folder = fs::is_directory(status) && !folder_of(path, Split::train).empty();
  if (split == Split::test) {
    const std::string test = split_by_folder ? folder_of(path, split) : std::string();
    if (test.empty())
      throw IoError(cat(path, ": has no test split; put its files in test/, beside train/"));
    return {test, false};
  }
  if (!split_by_folder) return {path, true};
  const std::string validation = folder_of(path, Split::validation);
  if (validation.empty()) return {folder_of(path, Split::train), true};
  return {split == Split::train ? folder_of(path, split) : validation, false};
}

// Leaves of the document that starts at `begin` what belongs to the split.
void keep_part(std::string& bytes, std::size_t begin, Split split, double val_fraction) {
  const std::size_t size = bytes.size() - begin;
  const auto held_out = static_cast<std::size_t>(static_cast<double>(size) * val_fraction);
  if (split == Split::train) {
    bytes.resize(bytes.size() - held_out);
  } else {
    bytes.erase(begin, size - held_out);
  }
}

}  // namespace

Corpus Corpus::load(const std::string& path, Split split, double val_fraction) {
  if (!(val_fraction >= 0 && val_fraction < 1)) {
    throw ConfigError(cat("data.val_fraction is ", val_fraction, ", but must be in [0, 1)"));
  }
  const Plan where = plan(path, split);
  Corpus corpus;
  corpus.split = split;
  std::vector<std::string> files;
  if (is_folder(where.root)) {
    for (const std::string& name : list_files(where.root))
      files.push_back((fs::path(where.root) / name).string());
    if (files.empty()) throw IoError(cat(where.root, ": has no file; put text files there"));
  } else {
    files.push_back(where.root);
  }
  for (const std::string& file : files) {
    const std::size_t begin = corpus.bytes.size();
    const Cleaned cleaned = append_text_file(file, corpus.bytes);
    corpus.byte_order_marks += cleaned.byte_order_marks;
    corpus.carriage_returns += cleaned.carriage_returns;
    if (where.by_fraction) keep_part(corpus.bytes, begin, split, val_fraction);
    corpus.documents.push_back({file, static_cast<std::int64_t>(begin)});
  }
  if (corpus.bytes.empty()) {
    throw IoError(
        cat(where.root, ": the ", name_of(split), " split has no bytes (files ", files.size(),
            where.by_fraction ? cat(", data.val_fraction ", val_fraction, ")") : std::string(")"),
            "; give more text"));
  }
  return corpus;
}

std::string Corpus::summary() const {
  return cat("text: ", name_of(split), " split of ", documents.size(),
             documents.size() == 1 ? " file, " : " files, ", bytes.size(), " clean bytes (removed ",
             byte_order_marks, " byte order marks and ", carriage_returns, " CR before LF)");
}

}  // namespace fovea::data
