#pragma once
// Host memory that tensors are copied to so that they may change while the copies are written.

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

#include "core/memory.h"
#include "core/stream.h"
#include "data/safetensors.h"

namespace fovea::train {

class Snapshot {
 public:
  explicit Snapshot(Stream& stream);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Makes room for that many tensors of together so many bytes, page-locked where the stream is a
  // GPU's; slow there, so best done before it matters. No tensor of take() may be left. Throws
  // DeviceError, OutOfMemory.
  void reserve(std::size_t tensors, std::size_t bytes);
  // Replaces the tensors, which are contiguous, by copies, and returns when these are complete. The
  // memory is kept for the next call, before which the copies must be gone. Of one thread.
  void take(std::initializer_list<std::vector<data::NamedTensor>*> groups);

 private:
  class Arena;
  Stream& stream_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace fovea::train
