#pragma once
// A regular file as read-only memory.

#include <cstddef>
#include <cstdint>
#include <string>

namespace fovea::data {

// The file must not shrink while it is mapped: the system ends processes that read behind its end.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws IoError
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }  // null if the file is empty
  std::uint64_t size() const { return size_; }

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace fovea::data
