#include "byte_io.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::apps {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;

}  // namespace

ByteInput::ByteInput(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  std::error_code ignored;
  if (path == "-") {
    descriptor_ = STDIN_FILENO;
  } else if (!std::filesystem::exists(path, ignored) ||
             std::filesystem::is_directory(path, ignored) ||
             std::filesystem::is_regular_file(path, ignored)) {
    file_ = std::make_unique<data::ByteReader>(path);  // or says what is wrong
  } else {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw IoError(cat(path, ": cannot be opened: ", std::strerror(errno)));
  }
}

ByteInput::~ByteInput() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

bool ByteInput::read(std::string& chunk) {
  chunk.resize(kChunk);
  if (file_ != nullptr) {
    chunk.resize(file_->read(chunk.data(), chunk.size()));
    return !chunk.empty();
  }
  ssize_t got = -1;
  do {
    got = ::read(descriptor_, chunk.data(), chunk.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw IoError(cat(name_, ": cannot be read: ", std::strerror(errno)));
  chunk.resize(static_cast<std::size_t>(got));
  return got > 0;
}

ByteOutput::ByteOutput(const std::string& path) {
  if (path.empty()) return;
  replaced_.emplace(path);
  file_.emplace(replaced_->temporary());
}

bool ByteOutput::write(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() < kChunk ? !closed_ : flush();
}

bool ByteOutput::flush() {
  if (file_) {
    file_->write(buffer_);
    buffer_.clear();
    return true;
  }
  for (std::string_view rest = buffer_; !rest.empty() && !closed_;) {
    const ssize_t put = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno != EPIPE)
      throw IoError(cat("standard output cannot be written: ", std::strerror(errno)));
    closed_ = put < 0;
    if (put > 0) rest.remove_prefix(static_cast<std::size_t>(put));
  }
  buffer_.clear();
  return !closed_;
}

void ByteOutput::finish() {
  flush();
  if (!file_) return;
  file_->finish();
  replaced_->finish();
}

}  // namespace fovea::apps
