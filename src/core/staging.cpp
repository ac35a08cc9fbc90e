#include "core/staging.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/cuda_runtime.h"
#include "core/error.h"

namespace fovea {

std::shared_ptr<void> host_memory(const Stream& stream, std::size_t bytes) {
  if (stream.device().is_cuda()) return cuda::pinned_memory(bytes);
  return {std::malloc(bytes), [](void* pointer) { std::free(pointer); }};
}

void Staging::upload(void* to, const void* from, std::size_t bytes) {
  if (!stream_.device().is_cuda()) return stream_.copy(to, from, bytes);
  if (ring_.size() < static_cast<std::size_t>(slots_)) ring_.emplace_back();
  Slot& slot = ring_[static_cast<std::size_t>(next_)];
  next_ = (next_ + 1) % slots_;
  slot.taken.synchronize();
  if (slot.bytes < bytes) {
    constexpr std::size_t kSmallest = 4096;
    slot.bytes = std::max(bytes, kSmallest);
    slot.memory = host_memory(stream_, slot.bytes);
  }
  std::memcpy(slot.memory.get(), from, bytes);
  stream_.copy(to, slot.memory.get(), bytes);
  slot.taken = stream_.record();
}

void Staging::upload(const Tensor& to, const Tensor& from) {
  FOVEA_ASSERT(to.shape() == from.shape() && to.dtype() == from.dtype() && to.is_contiguous() &&
               from.is_contiguous());
  upload(to.view().data, from.view().data, static_cast<std::size_t>(from.bytes()));
}

}  // namespace fovea
