#pragma once
// What the host hands to a device during a step, without waiting for it.

#include <cstddef>
#include <memory>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace fovea {

// A ring of page-locked slots: an upload is copied into the next slot and from there to the device,
// in stream order. The host waits only when the ring is full. On the CPU it is a plain copy.
class Staging {
 public:
  explicit Staging(Stream& stream, int slots = 16) : stream_(stream), slots_(slots) {}
  // The bytes may be changed as soon as this returns. On meta nothing happens.
  void upload(void* to, const void* from, std::size_t bytes);
  // The same for a contiguous host tensor of equal dtype and size.
  void upload(const Tensor& to, const Tensor& from);

 private:
  struct Slot {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    Event taken;  // the device has read the slot
  };
  Stream& stream_;
  std::vector<Slot> ring_;
  int slots_, next_ = 0;
};

// Page-locked where the stream is a device's, so that results can be copied there behind the host's
// back.
std::shared_ptr<void> host_memory(const Stream& stream, std::size_t bytes);

}  // namespace fovea
