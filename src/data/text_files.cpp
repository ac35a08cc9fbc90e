#include "data/text_files.h"

#include <algorithm>
#include <filesystem>
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

}  // namespace

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> files;
  std::set<fs::path> entered;
  walk(folder, "", entered, files);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fovea::data
