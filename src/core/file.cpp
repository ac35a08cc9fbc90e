#include "core/file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

[[noreturn]] void fail(std::string_view path, std::string_view what) {
  const int code = errno;
  throw IoError(cat(path, ": ", what, ": ", std::generic_category().message(code)));
}

// `name`: what the error calls the path.
int open_or_fail(const std::string& path, int flags, std::string_view name, std::string_view what) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail(name, what);
  return descriptor;
}

int open_or_fail(const std::string& path, int flags, std::string_view what) {
  return open_or_fail(path, flags, path, what);
}

// Closes what a constructor or function opened, whatever happens next.
struct Closer {
  int descriptor;
  ~Closer() { ::close(descriptor); }
};

// Some file systems and devices cannot sync; that is not a lost write.
bool sync_failed(int descriptor) {
  int rc;
  do {
    rc = ::fsync(descriptor);
  } while (rc != 0 && errno == EINTR);
  return rc != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP;
}

}  // namespace

std::string read_file(const std::string& path) {
  const Closer file{open_or_fail(path, O_RDONLY, "cannot be opened")};
  struct stat status {};
  if (::fstat(file.descriptor, &status) != 0) fail(path, "cannot be examined");
  if (S_ISDIR(status.st_mode)) throw IoError(cat(path, ": is a folder, but a file is needed"));
  std::string bytes;
  bytes.resize(S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) + 1 : 1 << 16);
  std::size_t used = 0;
  while (true) {
    if (used == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = ::read(file.descriptor, bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "cannot be read");
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must fail below instead of waiting for a writer.
  descriptor_ = open_or_fail(path, O_RDONLY | O_NONBLOCK, "cannot be opened");
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw IoError(cat(path, S_ISDIR(status.st_mode) ? ": is a folder, but a file is needed"
                                                    : ": is not a regular file"));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read");
    if (got == 0) {
      throw IoError(cat(path_, ": ends at byte ", offset, ", ", bytes, " bytes too early"));
    }
    at += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  descriptor_ = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC, "cannot be created");
  struct stat status {};
  regular_ = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (regular_) ::unlink(path_.c_str());
}

void OutputFile::write(const void* from, std::size_t bytes) {
  FOVEA_ASSERT(descriptor_ >= 0);
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(path_, cat("cannot be written beyond byte ", written_));
    at += put;
    written_ += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

void OutputFile::finish() {
  FOVEA_ASSERT(descriptor_ >= 0);
  if (sync_failed(descriptor_)) fail(path_, "cannot be brought to the disk");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  // Network file systems report a full disk only here.
  if (::close(descriptor) != 0 && errno != EINTR) {
    const int code = errno;
    if (regular_) ::unlink(path_.c_str());
    errno = code;
    fail(path_, "cannot be closed");
  }
}

ReplacedFile::ReplacedFile(const std::string& path) : path_(path) {
  std::error_code code;
  if (std::filesystem::is_symlink(path, code)) {
    path_ = std::filesystem::canonical(path, code).string();
    if (code) throw IoError(cat(path, ": is a link that leads nowhere: ", code.message()));
  }
  if (std::filesystem::exists(path_, code) && !std::filesystem::is_regular_file(path_, code))
    throw IoError(cat(path, ": is no regular file, and is not replaced"));
  temporary_ = cat(path_, ".tmp.", ::getpid());
  ::close(open_or_fail(temporary_, O_WRONLY | O_CREAT | O_TRUNC, path, "cannot be created"));
  ::unlink(temporary_.c_str());  // a process that is killed before it writes leaves nothing
}

ReplacedFile::~ReplacedFile() {
  ::unlink(temporary_.c_str());  // nothing is there after finish()
}

void ReplacedFile::finish() {
  rename_over(temporary_, path_);
}

void write_file_synced(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.finish();
}

void sync_folder(const std::string& path) {
  const Closer folder{open_or_fail(path, O_RDONLY | O_DIRECTORY, "cannot be opened as a folder")};
  if (sync_failed(folder.descriptor)) fail(path, "cannot be brought to the disk");
}

void rename_over(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(from, cat("cannot be renamed to ", to));
  std::filesystem::path name(to);
  if (!name.has_filename()) name = name.parent_path();  // "run/step_1/"
  const std::string folder = name.parent_path().string();
  sync_folder(folder.empty() ? "." : folder);
}

}  // namespace fovea
