#pragma once
// The project's own files, as the architecture tests read them.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::test {

struct SourceFile {
  std::string path;  // from the project's root: "src/core/error.h"
  std::vector<std::string> lines;

  std::string name() const { return std::filesystem::path(path).filename().string(); }
  std::string extension() const { return std::filesystem::path(path).extension().string(); }
  bool is_header() const { return extension() == ".h" || extension() == ".cuh"; }
  bool is_cuda() const { return extension() == ".cu" || extension() == ".cuh"; }
  bool inside(std::string_view folder) const {
    return path.rfind(std::string(folder) + "/", 0) == 0;
  }
};

inline std::filesystem::path root() {
  return FOVEA_SOURCE_DIR;
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

// Every C++ and CUDA file below one of the folders, in order of path.
inline std::vector<SourceFile> source_files(const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh")
        continue;
      const std::string path = std::filesystem::relative(entry.path(), root()).string();
      files.push_back({path, lines_of(text_of(entry.path()))});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

// The file that an #include line names, with its delimiter: "\"core/error.h" or "<vector"; or "".
inline std::string included(const std::string& line) {
  if (line.rfind("#include ", 0) != 0) return "";
  const std::size_t begin = line.find_first_of("\"<");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of("\">", begin + 1) - begin);
}

}  // namespace fovea::test
