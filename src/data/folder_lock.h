#pragma once
// One process at a time.

#include <string>

namespace fovea::data {

// Holds a lock file, which a killed process leaves behind unlocked; the destructor removes it.
class FolderLock {
 public:
  // Throws IoError if another process holds it: `what` says what that one does.
  FolderLock(const std::string& path, const std::string& what);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace fovea::data
