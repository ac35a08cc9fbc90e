#include "data/text_layout.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <system_error>

#include <glob.h>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/text_files.h"
#include "data/text_reader.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::span<const char* const> names_of(Split split) {
  static constexpr const char* kTrain[] = {"train"};
  static constexpr const char* kValidation[] = {"validation", "valid", "val"};
  static constexpr const char* kTest[] = {"test"};
  if (split == Split::train) return kTrain;
  if (split == Split::validation) return kValidation;
  return kTest;
}

}  // namespace

std::optional<Split> split_named(std::string_view word) {
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    for (const char* name : names_of(split))
      if (word == name) return split;
  }
  return std::nullopt;
}

std::string_view take_last_component(std::string_view& name) {
  const std::size_t at = name.find_last_of(".-_");
  const std::string_view last = at == std::string_view::npos ? name : name.substr(at + 1);
  name = at == std::string_view::npos ? std::string_view() : name.substr(0, at);
  return last;
}

namespace {

// The subfolder of `root` that holds a split, or "" if there is none.
std::string folder_of(const std::string& root, Split split) {
  std::string found;
  for (const char* name : names_of(split)) {
    const std::string folder = (fs::path(root) / name).string();
    if (!is_folder(folder)) continue;
    if (!found.empty())
      throw IoError(cat(root, ": has both ", found, " and ", folder, "; keep one"));
    found = folder;
  }
  return found;
}

// What a file's name says of its split.
struct SplitFile {
  std::string name;
  Split split = Split::train;
  std::string extension;  // without .gz
  bool wiki = false;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<SplitFile> split_file(const std::string& name) {
  static constexpr std::array<std::string_view, 7> kExtensions = {"tokens", "raw",    "txt", "text",
                                                                  "jsonl",  "ndjson", "json"};
  std::string_view rest = name;
  if (rest.ends_with(".gz")) rest.remove_suffix(3);
  const std::size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  SplitFile out;
  out.name = name;
  out.extension = rest.substr(dot + 1);
  if (std::find(kExtensions.begin(), kExtensions.end(), out.extension) == kExtensions.end())
    return std::nullopt;
  rest = rest.substr(0, dot);
  std::string_view word = take_last_component(rest);
  const bool numbered = is_number(word);
  if (numbered) {  // 00000-of-00001
    if (take_last_component(rest) != "of" || !is_number(take_last_component(rest)))
      return std::nullopt;
    word = take_last_component(rest);
  }
  out.wiki = rest == "wiki";
  if (!rest.empty() && !out.wiki && !numbered) return std::nullopt;
  const std::optional<Split> split = split_named(word);
  if (!split) return std::nullopt;
  out.split = *split;
  return out;
}

// Whether a text is WikiText, the name tells, else the first lines: a blank one, and a heading.
bool is_wikitext(const TextFile& file) {
  const std::optional<SplitFile> named = split_file(fs::path(file.path).filename().string());
  if (named && named->wiki && (named->extension == "tokens" || named->extension == "raw"))
    return true;
  constexpr std::string_view kBeginning = " \n = ";
  std::string head(kBeginning.size(), '\0');
  try {
    ByteReader reader(file.path);
    return reader.read(head.data(), head.size()) == head.size() && head == kBeginning;
  } catch (const IoError&) {
    return false;  // who reads it says what is wrong
  }
}

// In a folder with several forms of the same splits, the one that counts.
std::string form_of(const std::vector<SplitFile>& found, WikiTextForm form) {
  const std::array<std::string_view, 7> order =
      form == WikiTextForm::tokens
          ? std::array<std::string_view, 7>{"tokens", "txt",    "text", "raw",
                                            "jsonl",  "ndjson", "json"}
          : std::array<std::string_view, 7>{"raw",   "txt",    "text", "tokens",
                                            "jsonl", "ndjson", "json"};
  for (const std::string_view extension : order) {
    for (const SplitFile& file : found)
      if (file.extension == extension) return std::string(extension);
  }
  return {};
}

class Finder {
 public:
  Finder(const std::string& source, Split split) {
    out_.source = source;
    out_.split = split;
  }

  TextSplit find(WikiTextForm form) {
    const std::string& source = out_.source;
    std::error_code code;
    const fs::file_status status = fs::status(source, code);
    if (source.empty()) {
      throw IoError("data.path is empty; give a text file, a folder of text files or a pattern");
    }
    if (!fs::exists(status)) return pattern(code);
    if (!fs::is_directory(status)) {
      out_.layout = "one file";
      add(source, fs::path(source).filename().string());
      return by_fraction();
    }
    if (!folder_of(source, Split::train).empty()) return split_folders();
    const std::vector<std::string> names = list_files(source);
    if (names.empty()) throw IoError(cat(source, ": has no file; put text files there"));
    const std::vector<SplitFile> found = split_files(names);
    if (!found.empty()) return named(found, form);
    out_.layout = "plain folder";
    for (const std::string& name : names)
      add((fs::path(source) / name).string(), name);
    return by_fraction();
  }

 private:
  bool all_wikitext() const {
    return std::all_of(out_.files.begin(), out_.files.end(), is_wikitext);
  }
  void add(std::string path, std::string name) {
    out_.files.push_back({std::move(path), std::move(name)});
  }
  void add_folder(const std::string& folder, const std::string& prefix) {
    for (const std::string& name : list_files(folder))
      add((fs::path(folder) / name).string(), prefix + name);
    if (out_.files.empty()) throw IoError(cat(folder, ": has no file; put text files there"));
  }

  TextSplit by_fraction() {
    if (out_.split == Split::test) {
      throw NoSuchSplit(
          cat(out_.source, ": has no test split; put its files in test/, beside train/"));
    }
    out_.by_fraction = true;
    if (out_.layout != "split folders" && all_wikitext()) out_.layout += " of wikitext";
    return std::move(out_);
  }

  TextSplit split_folders() {
    out_.layout = "split folders";
    std::string folder = folder_of(out_.source, out_.split);
    if (out_.split == Split::test && folder.empty()) return by_fraction();  // says what is missing
    // Without a validation folder the training files are shared out.
    out_.by_fraction =
        out_.split != Split::test && folder_of(out_.source, Split::validation).empty();
    if (folder.empty()) folder = folder_of(out_.source, Split::train);
    add_folder(folder, cat(fs::path(folder).filename().string(), "/"));
    return std::move(out_);
  }

  // Nothing if the folder is not split by file names: then a "test.txt" may be just a text.
  static std::vector<SplitFile> split_files(const std::vector<std::string>& names) {
    std::vector<SplitFile> found;
    bool train = false;
    for (const std::string& name : names) {
      const std::optional<SplitFile> file = split_file(name);
      if (!file) continue;
      found.push_back(*file);
      train = train || file->split == Split::train;
    }
    if (!train && found.size() < names.size()) found.clear();
    return found;
  }

  TextSplit named(const std::vector<SplitFile>& found, WikiTextForm form) {
    const std::string extension = form_of(found, form);
    bool validation = false, train = false, wiki = false;
    for (const SplitFile& file : found) {
      if (file.extension != extension) continue;
      validation = validation || file.split == Split::validation;
      train = train || file.split == Split::train;
      wiki = wiki || file.wiki;
      if (file.split == out_.split) add((fs::path(out_.source) / file.name).string(), file.name);
    }
    if (out_.files.empty() && out_.split == Split::validation && train) {
      for (const SplitFile& file : found) {
        if (file.extension == extension && file.split == Split::train)
          add((fs::path(out_.source) / file.name).string(), file.name);
      }
    }
    if (out_.files.empty()) missing(found, extension);
    out_.layout = wiki || all_wikitext() ? cat("wikitext ", extension) : std::string("split files");
    out_.by_fraction = !validation && out_.split != Split::test;
    return std::move(out_);
  }

  [[noreturn]] void missing(const std::vector<SplitFile>& found, const std::string& extension) {
    std::vector<std::string> expected, there;
    for (const char* name : names_of(out_.split)) {
      expected.push_back(cat(name, ".", extension));
      expected.push_back(cat("wiki.", name, ".", extension));
    }
    for (const SplitFile& file : found)
      there.push_back(quote(file.name));
    throw NoSuchSplit(cat(out_.source, ": has no ", name_of(out_.split), " split; looked for ",
                          join(expected, ", "), " (each also with .gz), and there is ",
                          join(there, ", ")));
  }

  TextSplit pattern(const std::error_code& code) {
    const std::string& source = out_.source;
    out_.layout = "pattern";
    const bool is_pattern = source.find_first_of("*?[") != std::string::npos;
    ::glob_t matched = {};
    const int state = is_pattern ? ::glob(source.c_str(), GLOB_NOSORT, nullptr, &matched) : 0;
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < matched.gl_pathc; ++i)
      paths.emplace_back(matched.gl_pathv[i]);
    ::globfree(&matched);
    std::sort(paths.begin(), paths.end(), comes_before);
    if (paths.empty()) {
      throw IoError(cat(source, ": ",
                        is_pattern && state == GLOB_NOMATCH ? std::string("matches no file")
                        : code                              ? code.message()
                                                            : std::string("does not exist"),
                        "; data.path must be a text file, a folder of text files or a pattern"));
    }
    for (const std::string& path : paths) {
      if (is_folder(path)) {
        add_folder(path, cat(path, "/"));
      } else {
        add(path, path);
      }
    }
    return by_fraction();
  }

  TextSplit out_;
};

}  // namespace

TextSplit find_text(const std::string& source, Split split, WikiTextForm form) {
  return Finder(source, split).find(form);
}

std::vector<TextSplit> find_splits(const std::string& source, WikiTextForm form) {
  std::vector<TextSplit> found;
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    try {
      found.push_back(find_text(source, split, form));
    } catch (const NoSuchSplit&) {
      if (split == Split::test && found.empty()) throw;
    }
  }
  return found;
}

}  // namespace fovea::data
