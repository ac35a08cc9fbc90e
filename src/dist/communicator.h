#pragma once
// What the processes of one run say to each other.

#include <cstdint>
#include <memory>

#include "core/stream.h"
#include "core/view.h"

namespace fovea::dist {

enum class Reduce { sum, max };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // In place; ordered on the stream.
  virtual void all_reduce(const View& values, Reduce how, Stream& stream) = 0;
  virtual void broadcast(const View& values, int root, Stream& stream) = 0;
  virtual void all_gather(const View& in, const View& out, Stream& stream) = 0;
  virtual void reduce_scatter(const View& in, const View& out, Stream& stream) = 0;
  // Sends one buffer to a peer and receives its counterpart: the fixed tree is built on this.
  virtual void exchange(const View& send, const View& receive, int peer, Stream& stream) = 0;
  virtual void barrier() = 0;
};

// A run of one process: every operation is the identity.
std::unique_ptr<Communicator> solo();

}  // namespace fovea::dist
