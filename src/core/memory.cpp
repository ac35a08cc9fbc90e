#include "core/memory.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

constexpr std::size_t kRound = 512;
constexpr std::size_t kAlign = 256;
constexpr std::size_t kLarge = std::size_t{1} << 20;  // blocks from here on are split
constexpr std::size_t kGuardBytes = 64;
constexpr unsigned char kGuardValue = 0xA5;

std::size_t rounded(std::size_t bytes) {
  return std::max(kRound, (bytes + kRound - 1) / kRound * kRound);
}

class HostSource final : public MemorySource {
 public:
  explicit HostSource(std::size_t limit) : limit_(limit) {}
  void* obtain(std::size_t bytes) override {
    if (limit_ != 0 && used_ + bytes > limit_) return nullptr;
    void* pointer = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
    if (pointer != nullptr) used_ += bytes;
    return pointer;
  }
  void release(void* pointer, std::size_t bytes) noexcept override {
    used_ -= bytes;
    std::free(pointer);
  }
  Device device() const override { return kCpu; }

 private:
  std::size_t limit_, used_ = 0;
};

// Hands out addresses that nobody may read: every kernel call on meta only counts.
class MetaSource final : public MemorySource {
 public:
  explicit MetaSource(std::size_t limit) : limit_(limit) {}
  void* obtain(std::size_t bytes) override {
    if (limit_ != 0 && used_ + bytes > limit_) return nullptr;
    used_ += bytes;
    const std::uintptr_t address = next_;
    next_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  void release(void* /*pointer*/, std::size_t bytes) noexcept override { used_ -= bytes; }
  Device device() const override { return kMeta; }

 private:
  std::size_t limit_, used_ = 0;
  std::uintptr_t next_ = std::uintptr_t{1} << 44;
};

// Who shares the devices' memory. Its lock is never taken by a holder of an allocator's.
struct Everyone {
  std::mutex mutex;
  std::vector<CachingAllocator*> allocators;
};

Everyone& everyone() {
  static Everyone all;
  return all;
}

}  // namespace

std::unique_ptr<MemorySource> memory_source(Device device, std::size_t limit_bytes) {
  switch (device.kind) {
    case Device::Kind::cpu:
      return std::make_unique<HostSource>(limit_bytes);
    case Device::Kind::meta:
      return std::make_unique<MetaSource>(limit_bytes);
    case Device::Kind::cuda:
      break;
  }
  return cuda::device_memory(device, limit_bytes);
}

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source, const char* name)
    : source_(std::move(source)), name_(name) {
  Everyone& all = everyone();
  const std::lock_guard lock(all.mutex);
  all.allocators.push_back(this);
}

CachingAllocator::~CachingAllocator() {
  {
    Everyone& all = everyone();
    const std::lock_guard lock(all.mutex);
    all.allocators.erase(std::find(all.allocators.begin(), all.allocators.end(), this));
  }
  trim();
}

void* CachingAllocator::take(std::size_t bytes, const char* tag) {
  if (void* const out = take_here(bytes, tag)) return out;
  trim_device_memory(device());
  if (void* const out = take_here(bytes, tag)) return out;
  fail(bytes, tag);
}

// Null where the device has no more.
void* CachingAllocator::take_here(std::size_t bytes, const char* tag) {
  const std::lock_guard lock(mutex_);
  const std::size_t need = rounded(bytes);
  Block* block = find_free(need);
  if (block == nullptr) block = grow(need);
  if (block == nullptr) return nullptr;
  if (block->bytes >= kLarge && block->bytes - need >= kRound) split(block, need);
  block->busy = true;
  block->tag = tag;
  live_ += block->bytes;
  live_by_tag_[tag] += block->bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_by_tag_ = live_by_tag_;
  }
  return block->begin;
}

// Best fit; a small block is not spent on a request that would waste more than 1/8 of it.
CachingAllocator::Block* CachingAllocator::find_free(std::size_t bytes) {
  const auto found = free_.lower_bound(bytes);
  if (found == free_.end()) return nullptr;
  Block* block = found->second;
  const bool splittable = block->bytes >= kLarge;
  if (!splittable && block->bytes - bytes > block->bytes / 8) return nullptr;
  free_.erase(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::grow(std::size_t bytes) {
  void* memory = source_->obtain(bytes);
  if (memory == nullptr) {
    // Whole source blocks that lie free go back to the device; then one more try.
    for (auto it = free_.begin(); it != free_.end();) {
      Block* block = it->second;
      ++it;
      if (block->previous != nullptr || block->next != nullptr) continue;
      erase_free(block);
      reserved_ -= block->bytes;
      ++generation_;
      source_->release(block->begin, block->bytes);
      blocks_.erase(block->begin);
    }
    memory = source_->obtain(bytes);
    if (memory == nullptr) return nullptr;
  }
  reserved_ += bytes;
  auto block = std::make_unique<Block>();
  block->begin = static_cast<char*>(memory);
  block->bytes = bytes;
  Block* raw = block.get();
  blocks_.emplace(memory, std::move(block));
  return raw;
}

void CachingAllocator::split(Block* block, std::size_t bytes) {
  auto rest = std::make_unique<Block>();
  rest->begin = block->begin + bytes;
  rest->bytes = block->bytes - bytes;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest.get();
  block->next = rest.get();
  block->bytes = bytes;
  free_.emplace(rest->bytes, rest.get());
  void* key = rest->begin;
  blocks_.emplace(key, std::move(rest));
}

void CachingAllocator::erase_free(Block* block) noexcept {
  auto [from, to] = free_.equal_range(block->bytes);
  for (; from != to; ++from) {
    if (from->second == block) {
      free_.erase(from);
      return;
    }
  }
}

void CachingAllocator::merge_with_next(Block* block) noexcept {
  Block* next = block->next;
  if (next == nullptr || next->busy) return;
  erase_free(next);
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  blocks_.erase(next->begin);
}

void CachingAllocator::give(void* pointer) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  FOVEA_ASSERT(found != blocks_.end() && found->second->busy);
  Block* block = found->second.get();
  block->busy = false;
  live_ -= block->bytes;
  live_by_tag_[block->tag] -= block->bytes;
  merge_with_next(block);
  if (block->previous != nullptr && !block->previous->busy) {
    block = block->previous;
    erase_free(block);
    merge_with_next(block);
  }
  free_.emplace(block->bytes, block);
}

void CachingAllocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end();) {
    Block* block = it->second;
    if (block->previous != nullptr || block->next != nullptr) {
      ++it;
      continue;
    }
    it = free_.erase(it);
    reserved_ -= block->bytes;
    ++generation_;
    source_->release(block->begin, block->bytes);
    blocks_.erase(block->begin);
  }
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_locked();
}

MemoryStats CachingAllocator::stats_locked() const {
  MemoryStats out{live_, peak_, reserved_, {}};
  for (const auto& [tag, bytes] : peak_by_tag_) {
    const auto live = live_by_tag_.find(tag);
    out.by_tag.push_back({std::string(tag), live == live_by_tag_.end() ? 0 : live->second, bytes});
  }
  std::stable_sort(out.by_tag.begin(), out.by_tag.end(),
                   [](const TagBytes& a, const TagBytes& b) { return a.at_peak > b.at_peak; });
  return out;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
  peak_by_tag_ = live_by_tag_;
}

void CachingAllocator::fail(std::size_t bytes, const char* tag) const {
  const MemoryStats now = stats();
  throw OutOfMemory(
      cat("asked ", human_bytes(static_cast<double>(bytes)), " for \"", tag, "\" on ",
          name_of(device()), "; ", human_bytes(static_cast<double>(now.live)), " live of ",
          human_bytes(static_cast<double>(now.reserved)), " reserved; largest:\n",
          memory_report(now), device_memory_report(device(), this),
          "a smaller batch or shorter sequences need less; in training train.micro_batch_size, "
          "data.seq_len and train.recompute: true"));
}

void* GuardAllocator::take(std::size_t bytes, const char* tag) {
  void* pointer = inner_.take(bytes + kGuardBytes, tag);
  std::memset(static_cast<char*>(pointer) + bytes, kGuardValue, kGuardBytes);
  sizes_[pointer] = {bytes, tag};
  return pointer;
}

void GuardAllocator::give(void* pointer) noexcept {
  const auto found = sizes_.find(pointer);
  FOVEA_ASSERT(found != sizes_.end());
  const auto [bytes, tag] = found->second;
  const unsigned char* guard = static_cast<unsigned char*>(pointer) + bytes;
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    if (guard[i] == kGuardValue) continue;
    std::fprintf(stderr, "fovea: a write passed the end of \"%s\" (%zu bytes) by %zu\n", tag, bytes,
                 i + 1);
    std::abort();
  }
  sizes_.erase(found);
  inner_.give(pointer);
}

Allocator& persistent_allocator(Device device) {
  constexpr const char* kName = "for persistent tensors";
  static CachingAllocator host(memory_source(kCpu), kName);
  static CachingAllocator meta(memory_source(kMeta), kName);
  if (device.is_cpu()) return host;
  if (device.is_meta()) return meta;
  // One a device, made when it is first asked for.
  constexpr std::int16_t kMostDevices = 64;
  static std::array<std::unique_ptr<CachingAllocator>, kMostDevices> cuda;
  static std::mutex making;
  FOVEA_ASSERT(device.index >= 0 && device.index < kMostDevices);
  const std::lock_guard lock(making);
  std::unique_ptr<CachingAllocator>& own = cuda[static_cast<std::size_t>(device.index)];
  if (!own) own = std::make_unique<CachingAllocator>(memory_source(device), kName);
  return *own;
}

void trim_device_memory(Device device) noexcept {
  Everyone& all = everyone();
  const std::lock_guard lock(all.mutex);
  for (CachingAllocator* const allocator : all.allocators) {
    if (allocator->device() == device) allocator->trim();
  }
}

std::string device_memory_report(Device device, const Allocator* except) {
  constexpr std::size_t kMost = 5;
  const auto text = [](std::size_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  std::string out;
  std::size_t reserved = 0;
  MemorySource::Whole whole;
  Everyone& all = everyone();
  const std::lock_guard lock(all.mutex);
  for (const CachingAllocator* const allocator : all.allocators) {
    if (!(allocator->device() == device)) continue;
    const MemoryStats stats = allocator->stats();
    reserved += stats.reserved;
    whole = allocator->whole();
    if (allocator == except || stats.reserved == 0) continue;
    out += cat(text(stats.live), " live of ", text(stats.reserved), " reserved ", allocator->name(),
               "; largest:\n", memory_report(stats, kMost));
  }
  if (whole.total == 0) return out;
  const std::size_t used = whole.total - whole.free;
  return cat(out, text(whole.free), " free of ", text(whole.total), " on the device; ",
             text(used - std::min(used, reserved)),
             " are held by scratch memory, CUDA and its libraries, and other processes\n");
}

std::string memory_report(const MemoryStats& stats, std::size_t most) {
  std::string out;
  for (const TagBytes& row : stats.by_tag) {
    if (most-- == 0 || row.at_peak == 0) break;
    std::string bytes = human_bytes(static_cast<double>(row.at_peak));
    bytes.insert(0, bytes.size() < 12 ? 12 - bytes.size() : 0, ' ');
    out += cat(bytes, "  ", row.tag, "\n");
  }
  return out;
}

}  // namespace fovea
