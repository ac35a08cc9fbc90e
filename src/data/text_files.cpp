#include "data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::error_code& code, std::string_view what) {
  throw IoError(cat(path.string(), ": ", what, ": ", code.message()));
}

// `entered` holds the real paths of the folders seen so far: a link back to one of them is a loop.
void walk(const fs::path& folder, const std::string& prefix, std::set<fs::path>& entered,
          std::vector<std::string>& files) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  if (code) fail(folder, code, "cannot be opened as a folder");
  if (!entered.insert(real).second) return;
  std::vector<std::string> names;
  fs::directory_iterator at(folder, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code)) {
    names.push_back(at->path().filename().string());
  }
  if (code) fail(folder, code, "cannot be listed");
  std::sort(names.begin(), names.end());  // which of two links to a folder is entered must not vary
  for (const std::string& name : names) {
    if (name[0] == '.') continue;
    const fs::file_status status = fs::status(folder / name, code);
    if (code) fail(folder / name, code, "cannot be examined");
    if (fs::is_directory(status)) walk(folder / name, cat(prefix, name, "/"), entered, files);
    if (fs::is_regular_file(status)) files.push_back(prefix + name);
  }
}

// The digits of a name that is a number, without leading zeros ("" for zero); else nothing.
std::optional<std::string_view> number_in(std::string_view name) {
  std::string_view digits = name.substr(0, name.find('.'));
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

}  // namespace

bool comes_before(std::string_view path, std::string_view other) {
  // What the two have in common, whole names only.
  const auto differ = std::mismatch(path.begin(), path.end(), other.begin(), other.end());
  const std::string_view common =
      path.substr(0, static_cast<std::size_t>(differ.first - path.begin()));
  const std::size_t begin = common.rfind('/') + 1;  // npos + 1 is 0
  path.remove_prefix(begin);
  other.remove_prefix(begin);
  const auto a = number_in(path.substr(0, path.find('/'))),
             b = number_in(other.substr(0, other.find('/')));
  if (a.has_value() != b.has_value()) return a.has_value();
  if (a && *a != *b) return a->size() != b->size() ? a->size() < b->size() : *a < *b;
  return path < other;
}

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> files;
  std::set<fs::path> entered;
  walk(folder, "", entered, files);
  std::sort(files.begin(), files.end(), comes_before);
  return files;
}

}  // namespace fovea::data
