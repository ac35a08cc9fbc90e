#include "train/snapshot.h"

#include "core/error.h"
#include "core/staging.h"
#include "core/tensor.h"
#include "core/text.h"

namespace fovea::train {

namespace {

constexpr std::size_t kAlign = 256;  // what an Allocator promises

std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

// One block, handed out from front to back and taken back as a whole: page-locking is slow, so it
// is done once.
class Snapshot::Arena final : public Allocator {
 public:
  void reserve(const Stream& stream, std::size_t tensors, std::size_t bytes) {
    FOVEA_ASSERT(live_ == 0);
    const std::size_t wanted = bytes + (tensors + 1) * kAlign;
    if (wanted > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_ = host_memory(stream, wanted);
      if (memory_ == nullptr) fail(wanted);
      bytes_ = wanted;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    used_ = rounded(address) - address;
  }
  void* take(std::size_t bytes, const char*) override {
    if (used_ + bytes > bytes_) fail(bytes);
    char* out = static_cast<char*>(memory_.get()) + used_;
    used_ += rounded(bytes);
    ++live_;
    return out;
  }
  void give(void*) noexcept override { --live_; }
  void trim() noexcept override {}
  MemoryStats stats() const override {
    return {.live = used_, .peak = bytes_, .reserved = bytes_, .by_tag = {}};
  }
  void reset_peak() override {}

 private:
  [[noreturn]] static void fail(std::size_t bytes) {
    throw OutOfMemory(cat("no ", human_bytes(static_cast<double>(bytes)),
                          " of host memory for the copy of a checkpoint: set ckpt.async to never"));
  }

  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0, used_ = 0;
  std::int64_t live_ = 0;
};

Snapshot::Snapshot(Stream& stream) : stream_(stream), arena_(std::make_unique<Arena>()) {}
Snapshot::~Snapshot() = default;

void Snapshot::reserve(std::size_t tensors, std::size_t bytes) {
  arena_->reserve(stream_, tensors, bytes);
}

void Snapshot::take(std::initializer_list<std::vector<data::NamedTensor>*> groups) {
  std::size_t tensors = 0, bytes = 0;
  for (const auto* group : groups) {
    tensors += group->size();
    for (const data::NamedTensor& named : *group)
      bytes += static_cast<std::size_t>(named.tensor.bytes());
  }
  reserve(tensors, bytes);
  for (auto* group : groups) {
    for (data::NamedTensor& named : *group) {
      FOVEA_ASSERT(named.tensor.is_contiguous());
      const Tensor copy =
          Tensor::empty(*arena_, named.tensor.shape(), named.tensor.dtype(), kCpu, "checkpoint");
      stream_.copy(copy.view().data, named.tensor.view().data,
                   static_cast<std::size_t>(named.tensor.bytes()));
      named.tensor = copy;
    }
  }
  stream_.synchronize();
}

}  // namespace fovea::train
