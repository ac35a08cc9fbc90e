#include "data/mapped_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw IoError(cat(path, ": ", what, ": ", std::generic_category().message(errno)));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail(path, "cannot be opened");
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw IoError(cat(path, ": is not a regular file"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  void* mapped =
      size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  const int code = errno;
  ::close(descriptor);
  if (mapped == MAP_FAILED) {
    errno = code;
    fail(path, "cannot be mapped into memory");
  }
  data_ = static_cast<const unsigned char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
}

}  // namespace fovea::data
