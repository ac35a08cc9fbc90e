#include "dist/wire.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr std::uint32_t kMagic = 0x61657666;  // "fvea"
constexpr std::uint16_t kVersion = 4;
constexpr int kLastFrame = static_cast<int>(Frame::end);
constexpr int kReadsInARow = 16;  // then others have their turn

struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t type = 0;
  std::uint64_t size = 0;
};

// Forgets the beginning, so that the cost stays in proportion to the bytes that pass.
void compact(std::string& bytes, std::size_t& beginning) {
  if (beginning < bytes.size() / 2 + 1) return;
  bytes.erase(0, beginning);
  if (bytes.empty()) bytes.shrink_to_fit();
  beginning = 0;
}

bool is_not_yet(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

std::uint64_t BodyReader::number() {
  std::uint64_t out = 0;
  if (!has(sizeof out)) return 0;
  std::memcpy(&out, left_.data(), sizeof out);
  left_.remove_prefix(sizeof out);
  return out;
}

std::string BodyReader::text() {
  const std::uint64_t size = number();
  if (!has(size)) return {};
  std::string out(left_.substr(0, size));
  left_.remove_prefix(size);
  return out;
}

void Channel::post(Frame type, std::string_view body) {
  Header header;
  header.type = static_cast<std::uint16_t>(type);
  header.size = body.size();
  out_.append(reinterpret_cast<const char*>(&header), sizeof header);
  out_ += body;
}

void Channel::flush() {
  while (is_open() && has_unsent()) {
    const ssize_t n = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && is_not_yet(errno)) break;
    sent_ = n < 0 ? out_.size() : sent_ + static_cast<std::size_t>(n);
  }
  compact(out_, sent_);
}

bool Channel::receive() {
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  for (int i = 0; i < kReadsInARow; ++i) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && is_not_yet(errno)) return true;
    if (n <= 0) return i > 0;  // what came before comes first; the end shows again
    in_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return true;
}

std::optional<ReceivedFrame> Channel::take(std::uint64_t limit) {
  const std::string_view received = std::string_view(in_).substr(taken_);
  Header header;
  // A stranger is told from the first bytes: he may never send a whole header.
  const std::size_t known = std::min(received.size(), sizeof header.magic);
  if (known > 0 && std::memcmp(received.data(), &header.magic, known) != 0)
    throw CommunicationError("these bytes are no fovea's");
  if (received.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, received.data(), sizeof header);
  if (header.version != kVersion || header.type > kLastFrame)
    throw CommunicationError("a frame of another version of fovea");
  if (header.size > limit)
    throw CommunicationError(cat("a frame of ", header.size, " bytes, but at most ", limit));
  if (received.size() - sizeof header < header.size) return std::nullopt;
  ReceivedFrame out{static_cast<Frame>(header.type),
                    std::string(received.substr(sizeof header, header.size))};
  taken_ += sizeof header + header.size;
  compact(in_, taken_);
  return out;
}

}  // namespace fovea::dist
