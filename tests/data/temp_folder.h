#pragma once
// A fresh folder that goes with the test case.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/file.h"

namespace fovea::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fovea_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  // Writes a file, with the folders above it, and returns its path.
  std::string put(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_file_synced(*this / name, bytes);
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

// What `action` throws, or "" if nothing.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace fovea::test
