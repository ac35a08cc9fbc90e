#pragma once
// What a session sends over its connections: frames of a type and a body, and bodies made of
// numbers and texts. Both ends are the same build on machines of one kind.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dist/socket.h"

namespace fovea::dist {

enum class Frame : std::uint16_t {
  hello,     // to the server: token, rank, size, host, pid; the code and the message of a rank that
             // cannot take part, or 0 and nothing; the command
  refused,   // to a rank: why
  welcome,   // to a rank, once all are there: launch id, address of rank 0's machine, then host and
             // pid of every rank
  beat,      // both ways: a sign of life, and the place of the rank; to a rank: of rank 0
  set,       // to the server: key, value
  get,       // to the server: key
  value,     // to a rank: key, value
  gather,    // to the server: number of the gathering, bytes
  gathered,  // to a rank: everybody's bytes, by rank
  leave,     // to the server
  left,      // to a rank: all have left
  fail,      // to the server: code, message; before all ranks are there, too
  failing,   // to the rank that fails: the others were told
  end,       // to a rank: code, the rank that failed (-1: none alone), message
};

// Bytes of a frame's body: few before the token was seen, room for an evaluation afterwards.
inline constexpr std::uint64_t kSmallFrame = 4096, kLargeFrame = std::uint64_t{1} << 30;

class Body {
 public:
  Body& add(std::uint64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Body& add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what Body wrote; good() turns false, and everything after it is zero or empty, where there
// is not enough.
class BodyReader {
 public:
  explicit BodyReader(std::string_view bytes) : left_(bytes) {}
  std::uint64_t number();
  std::string text();
  bool good() const { return good_; }

 private:
  bool has(std::uint64_t bytes) {
    good_ = good_ && bytes <= left_.size();
    return good_;
  }
  std::string_view left_;
  bool good_ = true;
};

struct ReceivedFrame {
  Frame type = Frame::beat;
  std::string body;
};

// One end of a connection. Nothing here waits. For one thread at a time.
class Channel {
 public:
  explicit Channel(Socket socket = Socket()) : socket_(std::move(socket)) {}

  const Socket& socket() const { return socket_; }
  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.close(); }

  // Appends to what is to be sent.
  void post(Frame type, std::string_view body);
  bool has_unsent() const { return sent_ < out_.size(); }
  // Sends what the network takes now. A lost connection loses the rest, and shows in receive().
  void flush();

  // Reads some of what is there; false: the connection has ended, and all of it was read.
  bool receive();
  // Takes the first whole frame out of what was received, if there is one. Throws
  // CommunicationError for bytes that no fovea sent, and for bodies above `limit`.
  std::optional<ReceivedFrame> take(std::uint64_t limit);

 private:
  Socket socket_;
  std::string out_, in_;
  std::size_t sent_ = 0, taken_ = 0;  // of their beginnings
};

}  // namespace fovea::dist
