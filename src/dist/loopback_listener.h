#pragma once
// Where the processes of one start of a run meet: a listening socket on this machine's loopback,
// and a secret that tells them from strangers.

#include <string>

namespace fovea::dist {

class LoopbackListener {
 public:
  // On a port that the system chooses. Throws IoError.
  LoopbackListener();
  ~LoopbackListener();
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;

  int descriptor() const { return listener_; }             // closed on exec
  const std::string& address() const { return address_; }  // 127.0.0.1:port
  const std::string& token() const { return token_; }      // 32 hexadecimal digits

 private:
  int listener_ = -1;
  std::string address_, token_;
};

}  // namespace fovea::dist
