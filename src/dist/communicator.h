#pragma once
// Tensors that the processes of one run add up and hand on.

#include <chrono>
#include <cstdint>
#include <memory>

#include "core/stream.h"
#include "core/view.h"
#include "dist/session.h"

namespace fovea::dist {

enum class Reduce { sum, max };

// Operations are called by all ranks in the same order, on contiguous views of the communicator's
// device, and are ordered on the stream: on a GPU they return before they are done, and may be
// captured. Sums of one dtype in that dtype. Throws CommunicationError.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place. In which order ranks are added is the library's choice, but all ranks get the same
  // bits, and with two ranks no order shows.
  virtual void all_reduce(const View& values, Reduce how, Stream& stream) = 0;
  // Sends to a peer, who does the same, and receives from it. Sizes may differ between the two
  // directions and be zero. The fixed tree is built on this.
  virtual void exchange(const View& send, const View& receive, int peer, Stream& stream) = 0;
  // Until all ranks are here; the host waits.
  virtual void barrier() = 0;
};

// A run of one process: every operation is the identity.
std::unique_ptr<Communicator> solo();
// Rank 0 of `size` that nobody answers: for counting on meta only.
std::unique_ptr<Communicator> imagined(int size);
// CPU ranks, over TCP (Gloo). The session must outlive it. within: for all ranks to be connected to
// each other. Throws CommunicationError, the same on all ranks; ConfigError for more ranks on this
// machine than it has ports.
std::unique_ptr<Communicator> gloo(Session& session,
                                   std::chrono::milliseconds within = std::chrono::minutes(2));
// `blocks`: of a GPU that an operation may occupy (NCCL's channels); 0: NCCL's choice. Few of them
// slow a reduction down, but leave products running beside it at their speed (calibration.md 9).
// Throws DeviceError where NCCL is missing.
std::unique_ptr<Communicator> nccl(Session& session, Device device, int blocks = 0);

}  // namespace fovea::dist
