#pragma once
// Where tensors get their bytes. Two lifetimes: persistent (Tensor::empty) and a step's
// (Ctx::empty).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device.h"

namespace fovea {

struct TagBytes {
  std::string tag;
  std::size_t live = 0;     // bytes held now
  std::size_t at_peak = 0;  // bytes held when the allocator stood at its peak
};

struct MemoryStats {
  std::size_t live = 0;          // bytes asked for and not given back
  std::size_t peak = 0;          // largest `live` so far
  std::size_t reserved = 0;      // bytes held from the device, recyclable ones included
  std::vector<TagBytes> by_tag;  // largest at_peak first
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // 256-byte aligned; `tag` (a static string: an op's name) owns the bytes in reports. Zero bytes
  // yield a valid pointer. Throws OutOfMemory with the largest tags.
  virtual void* take(std::size_t bytes, const char* tag) = 0;
  virtual void give(void* pointer) noexcept = 0;
  // Returns recyclable memory to the device.
  virtual void trim() noexcept = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
};

// Raw memory of one device: what CachingAllocator builds on.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void* obtain(std::size_t bytes) = 0;  // null when there is none; 256-byte aligned
  virtual void release(void* pointer, std::size_t bytes) noexcept = 0;
  virtual Device device() const = 0;
  // Of the whole device, whoever holds it; total 0 where that is not known.
  struct Whole {
    std::size_t free = 0, total = 0;
  };
  virtual Whole whole() const { return {}; }
};

// malloc'd host memory, cudaMalloc'd device memory; on meta, addresses that stand for no memory.
// `limit_bytes` 0: no limit of our own. Throws DeviceError for a device this build cannot serve.
std::unique_ptr<MemorySource> memory_source(Device device, std::size_t limit_bytes = 0);

// Recycles blocks: sizes rounded to 512 bytes, best fit, reused when the waste is under 1/8 (large
// blocks are split). One compute stream per process makes a block reusable at once.
// The bookkeeping runs alike on every device, so that meta predicts the peak of a real run.
// Before a request fails, it and the device's other allocators give back what they do not use. All
// of them are known to the process for that, and for the report of a failure.
class CachingAllocator final : public Allocator {
 public:
  // `name`: what the failure of another one calls it.
  explicit CachingAllocator(std::unique_ptr<MemorySource> source,
                            const char* name = "for activations");
  ~CachingAllocator() override;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* take(std::size_t bytes, const char* tag) override;
  void give(void* pointer) noexcept override;
  void trim() noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  // Grows whenever memory goes back to the device: addresses handed out before may be others' now.
  std::uint64_t generation() const { return generation_; }
  Device device() const { return source_->device(); }
  const char* name() const { return name_; }
  MemorySource::Whole whole() const { return source_->whole(); }

 private:
  struct Block {
    char* begin = nullptr;
    std::size_t bytes = 0;
    Block* previous = nullptr;  // neighbours cut from the same source block
    Block* next = nullptr;
    bool busy = false;
    const char* tag = "";
  };
  Block* find_free(std::size_t bytes);
  void* take_here(std::size_t bytes, const char* tag);
  Block* grow(std::size_t bytes);
  void split(Block* block, std::size_t bytes);
  void merge_with_next(Block* block) noexcept;
  void erase_free(Block* block) noexcept;
  [[noreturn]] void fail(std::size_t bytes, const char* tag) const;
  MemoryStats stats_locked() const;

  std::unique_ptr<MemorySource> source_;
  const char* name_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, Block*> free_;
  std::unordered_map<void*, std::unique_ptr<Block>>
      blocks_;  // by first byte; never iterated in results
  std::map<std::string_view, std::size_t> live_by_tag_, peak_by_tag_;
  std::size_t live_ = 0, peak_ = 0, reserved_ = 0;
  std::atomic<std::uint64_t> generation_ = 0;
};

// Puts 64 guard bytes behind every block and checks them when it comes back; a write past the end
// aborts with the block's tag. For tests.
class GuardAllocator final : public Allocator {
 public:
  explicit GuardAllocator(Allocator& inner) : inner_(inner) {}
  void* take(std::size_t bytes, const char* tag) override;
  void give(void* pointer) noexcept override;
  void trim() noexcept override { inner_.trim(); }
  MemoryStats stats() const override { return inner_.stats(); }
  void reset_peak() override { inner_.reset_peak(); }

 private:
  Allocator& inner_;
  std::unordered_map<void*, std::pair<std::size_t, const char*>> sizes_;
};

// The process-wide allocator of persistent tensors on `device`.
Allocator& persistent_allocator(Device device);

// All allocators of the device give back what they do not use.
void trim_device_memory(Device device) noexcept;
// What they hold, by tag, and what others do: a line or more each. `except` is left out.
std::string device_memory_report(Device device, const Allocator* except = nullptr);

// The report of an allocation failure and of `--memory`: the largest tags, one a line.
std::string memory_report(const MemoryStats& stats, std::size_t most = 10);

}  // namespace fovea
