#include "data/folder_lock.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

namespace {

// Whether the path still leads to the open file: its last holder may have removed it meanwhile.
bool is_current(const std::string& path, int descriptor) {
  struct stat by_path {
  }, open{};
  return ::stat(path.c_str(), &by_path) == 0 && ::fstat(descriptor, &open) == 0 &&
         by_path.st_ino == open.st_ino && by_path.st_dev == open.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::string& path, const std::string& what) : path_(path) {
  while (true) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0)
      throw IoError(cat(path, ": cannot be created: ", std::generic_category().message(errno)));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      ::close(descriptor_);
      if (code == EWOULDBLOCK) throw IoError(what);
      throw IoError(cat(path, ": cannot be locked: ", std::generic_category().message(code)));
    }
    if (is_current(path, descriptor_)) return;
    ::close(descriptor_);
  }
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace fovea::data
