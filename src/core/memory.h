#pragma once
// Where tensors get their bytes. Two lifetimes: persistent (Tensor::empty) and a step's
// (Ctx::empty).

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
};

// malloc'd host memory, cudaMalloc'd device memory; on meta, addresses that stand for no memory.
// `limit_bytes` 0: no limit of our own. Throws DeviceError for a device this build cannot serve.
std::unique_ptr<MemorySource> memory_source(Device device, std::size_t limit_bytes = 0);

// Recycles blocks: sizes rounded to 512 bytes, best fit, reused when the waste is under 1/8 (large
// blocks are split). One compute stream per process makes a block reusable at once.
// The bookkeeping runs alike on every device, so that meta predicts the peak of a real run.
class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(std::unique_ptr<MemorySource> source);
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
  Block* grow(std::size_t bytes);
  void split(Block* block, std::size_t bytes);
  void merge_with_next(Block* block) noexcept;
  void erase_free(Block* block) noexcept;
  [[noreturn]] void fail(std::size_t bytes, const char* tag) const;
  MemoryStats stats_locked() const;

  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::multimap<std::size_t, Block*> free_;
  std::unordered_map<void*, std::unique_ptr<Block>>
      blocks_;  // by first byte; never iterated in results
  std::map<std::string_view, std::size_t> live_by_tag_, peak_by_tag_;
  std::size_t live_ = 0, peak_ = 0, reserved_ = 0;
  std::uint64_t generation_ = 0;
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

// The report of an allocation failure and of `--memory`: the largest tags, one a line.
std::string memory_report(const MemoryStats& stats, std::size_t most = 10);

}  // namespace fovea
