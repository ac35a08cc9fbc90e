#include "train/line_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace fovea::train {

namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw IoError(cat(path, ": ", what, ": ", std::generic_category().message(errno)));
}

std::string committed_part(const std::string& path, const FileMark& committed) {
  if (committed.bytes == 0) return {};
  if (::access(path.c_str(), F_OK) != 0) {
    throw CheckpointError(cat(path, ": is missing, but the checkpoint counts on its first ",
                              committed.bytes, " bytes"));
  }
  std::string text = read_file(path);
  if (text.size() < committed.bytes) {
    throw CheckpointError(cat(path, ": has ", text.size(), " bytes, but the checkpoint counts on ",
                              committed.bytes, ": it was cut after the checkpoint was written"));
  }
  text.resize(committed.bytes);
  if (data::xxh3_64(text) != committed.xxh3) {
    throw CheckpointError(cat(path, ": its first ", committed.bytes, " bytes have xxh3 ",
                              data::hash_hex(data::xxh3_64(text)),
                              ", but the checkpoint counts on ", data::hash_hex(committed.xxh3),
                              ": it was altered after the checkpoint was written"));
  }
  return text;
}

}  // namespace

LineFile::LineFile(const std::string& path, const FileMark& committed) : path_(path) {
  hash_.update(committed_part(path, committed));
  bytes_ = committed.bytes;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path_, "cannot be opened for writing");
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0 ||
      ::lseek(descriptor_, 0, SEEK_END) < 0) {
    const int code = errno;
    ::close(descriptor_);
    errno = code;
    fail(path_, "cannot be cut to its committed length");
  }
}

LineFile::~LineFile() {
  ::close(descriptor_);
}

void LineFile::require_named() const {
  struct stat ours {
  }, named{};
  if (::fstat(descriptor_, &ours) != 0) fail(path_, "cannot be examined");
  if (::stat(path_.c_str(), &named) == 0 && named.st_dev == ours.st_dev &&
      named.st_ino == ours.st_ino)
    return;
  throw IoError(cat(path_,
                    ": was removed, moved or replaced while this run wrote to it, and what it "
                    "wrote would be lost: put it back or choose another out_dir, and start "
                    "the run again"));
}

void LineFile::append(std::string_view line) {
  require_named();
  const std::string text = cat(line, "\n");
  const char* at = text.data();
  for (std::size_t left = text.size(); left > 0;) {
    const ssize_t put = ::write(descriptor_, at, left);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(path_, cat("cannot be written beyond byte ", bytes_));
    at += put;
    left -= static_cast<std::size_t>(put);
  }
  bytes_ += text.size();
  hash_.update(text);
}

void LineFile::sync() {
  require_named();
  while (::fsync(descriptor_) != 0) {
    if (errno == EINTR) continue;
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) return;  // a device that cannot sync
    fail(path_, "cannot be brought to the disk");
  }
}

}  // namespace fovea::train
