#include "core/memory.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/stream.h"
#include "skip.h"

using namespace fovea;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Probe final : MemorySource {
  explicit Probe(std::size_t limit = 0) : inner(memory_source(kCpu, limit)) {}
  void* obtain(std::size_t bytes) override {
    ++obtained;
    return inner->obtain(bytes);
  }
  void release(void* pointer, std::size_t bytes) noexcept override {
    ++released;
    inner->release(pointer, bytes);
  }
  Device device() const override { return kCpu; }
  std::unique_ptr<MemorySource> inner;
  int obtained = 0, released = 0;
};

// Runs fn in a child process; what it wrote to stderr, if abort() ended it, else "".
template <class F>
std::string abort_message(F&& fn) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], 2);
    fn();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? text : "";
}

}  // namespace

TEST_CASE("blocks are aligned to 256 bytes and counted in units of 512") {
  CachingAllocator memory(memory_source(kCpu));
  void* small = memory.take(1, "a");
  void* none = memory.take(0, "a");
  void* odd = memory.take(513, "a");
  for (void* p : {small, none, odd}) {
    CHECK(p != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
  }
  CHECK(none != small);
  CHECK(memory.stats().live == 512 + 512 + 1024);
  for (void* p : {small, none, odd})
    memory.give(p);
  CHECK(memory.stats().live == 0);
  CHECK(memory.stats().peak == 2048);
}

TEST_CASE("a block given back is used again, unless more than an eighth would be wasted") {
  CachingAllocator memory(memory_source(kCpu));
  void* block = memory.take(9 * 512, "a");
  memory.give(block);
  void* wasteful = memory.take(7 * 512, "a");
  CHECK(wasteful != block);
  void* close = memory.take(8 * 512, "a");
  CHECK(close == block);
  memory.give(wasteful);
  memory.give(close);
}

TEST_CASE("the best fitting free block is taken") {
  CachingAllocator memory(memory_source(kCpu));
  void* large = memory.take(102400, "a");
  void* fitting = memory.take(98304, "a");
  memory.give(large);
  memory.give(fitting);
  void* again = memory.take(98304, "a");
  CHECK(again == fitting);
  memory.give(again);
}

TEST_CASE("large blocks are split, and their parts joined when they come back") {
  auto source = std::make_unique<Probe>();
  const Probe& probe = *source;
  CachingAllocator memory(std::move(source));
  memory.give(memory.take(8 * kMiB, "a"));
  void* first = memory.take(3 * kMiB, "a");
  void* second = memory.take(kMiB, "a");
  void* third = memory.take(4 * kMiB, "a");
  CHECK(probe.obtained == 1);
  CHECK(static_cast<char*>(second) == static_cast<char*>(first) + 3 * kMiB);
  memory.give(second);
  memory.give(first);
  memory.give(third);
  void* whole = memory.take(8 * kMiB, "a");
  CHECK(probe.obtained == 1);
  CHECK(whole == first);
  memory.give(whole);
}

TEST_CASE("trim returns free memory to the device and keeps what is in use") {
  auto source = std::make_unique<Probe>();
  const Probe& probe = *source;
  CachingAllocator memory(std::move(source));
  void* kept = memory.take(1000, "a");
  memory.give(memory.take(100000, "a"));
  memory.trim();
  CHECK(probe.released == 1);
  CHECK(memory.stats().reserved == 1024);
  memory.give(kept);
  memory.trim();
  CHECK(memory.stats().reserved == 0);
}

TEST_CASE("free memory goes back to the device before a request fails") {
  CachingAllocator memory(std::make_unique<Probe>(4 * kMiB));
  void* a = memory.take(3 * kMiB / 2, "a");
  void* b = memory.take(3 * kMiB / 2, "b");
  memory.give(a);
  memory.give(b);
  void* whole = memory.take(4 * kMiB, "c");
  CHECK(whole != nullptr);
  memory.give(whole);
}

TEST_CASE("a failure names what was asked, what is live and the largest owners") {
  CachingAllocator memory(memory_source(kCpu, 4 * kMiB));
  void* scores = memory.take(3 * kMiB, "attention_scores");
  void* other = memory.take(kMiB / 2, "linear");
  std::string text;
  try {
    memory.take(2 * kMiB, "softmax");
  } catch (const OutOfMemory& e) {
    text = e.what();
    CHECK(e.code() == ExitCode::out_of_memory);
  }
  CHECK(text.find("asked 2.00 MiB for \"softmax\" on cpu; 3.50 MiB live") == 0);
  CHECK(text.find("3.00 MiB  attention_scores") < text.find("512 KiB  linear"));
  CHECK(text.find("512 KiB  linear") != std::string::npos);
  memory.give(scores);
  memory.give(other);
}

TEST_CASE("tags say who held what at the peak") {
  CachingAllocator memory(memory_source(kCpu));
  void* early = memory.take(1024, "early");
  memory.give(early);
  void* a = memory.take(4096, "a");
  void* b = memory.take(8192, "b");
  memory.give(a);
  const MemoryStats stats = memory.stats();
  CHECK(stats.peak == 12288);
  REQUIRE(stats.by_tag.size() >= 2);
  CHECK(stats.by_tag[0].tag == "b");
  CHECK(stats.by_tag[0].live == 8192);
  CHECK(stats.by_tag[1].tag == "a");
  CHECK(stats.by_tag[1].live == 0);
  CHECK(stats.by_tag[1].at_peak == 4096);
  CHECK(memory_report(stats, 1) == "    8.00 KiB  b\n");
  memory.reset_peak();
  CHECK(memory.stats().peak == 8192);
  memory.give(b);
}

TEST_CASE("meta keeps the books of a CPU run without its memory") {
  CachingAllocator host(memory_source(kCpu)), meta(memory_source(kMeta));
  for (Allocator* memory : {static_cast<Allocator*>(&host), static_cast<Allocator*>(&meta)}) {
    void* held[4] = {};
    for (std::size_t i = 0; i < 40; ++i) {
      void*& slot = held[i * 7 % 4];
      if (slot != nullptr) memory->give(slot);
      slot = memory->take((i * 37 % 11 + 1) * 300000, "x");
    }
    for (void* slot : held)
      memory->give(slot);
  }
  CHECK(meta.stats().peak == host.stats().peak);
  CHECK(meta.stats().reserved == host.stats().reserved);
  void* huge = meta.take(std::size_t{1} << 45, "more than any machine has");
  CHECK(huge != nullptr);
  meta.give(huge);
}

TEST_CASE("a write past the end of a guarded block aborts with its tag") {
  CachingAllocator memory(memory_source(kCpu));
  GuardAllocator guarded(memory);
  char* good = static_cast<char*>(guarded.take(100, "good"));
  std::memset(good, 0, 100);
  guarded.give(good);
  const std::string text = abort_message([&] {
    char* bad = static_cast<char*>(guarded.take(100, "bad"));
    bad[102] = 1;
    guarded.give(bad);
  });
  CHECK(text.find("a write passed the end of \"bad\" (100 bytes) by 3") != std::string::npos);
}

TEST_CASE("giving back twice aborts") {
  CachingAllocator memory(memory_source(kCpu));
  const std::string text = abort_message([&] {
    void* block = memory.take(100, "a");
    memory.give(block);
    memory.give(block);
  });
  CHECK(text.find("internal error") != std::string::npos);
}

TEST_CASE("a device this build cannot serve is refused") {
  if (cuda::device_count() > 0) FOVEA_SKIP("there is a CUDA device");
  CHECK_THROWS_AS(memory_source(Device{Device::Kind::cuda, 0}), DeviceError);
  CHECK_THROWS_AS(persistent_allocator(Device{Device::Kind::cuda, 0}), DeviceError);
}

namespace {

// Several allocators' share of one device.
struct Shared final : MemorySource {
  explicit Shared(std::size_t& pool) : left(pool) {}
  void* obtain(std::size_t bytes) override {
    if (bytes > left) return nullptr;
    left -= bytes;
    return std::aligned_alloc(256, bytes);
  }
  void release(void* pointer, std::size_t bytes) noexcept override {
    left += bytes;
    std::free(pointer);
  }
  Device device() const override { return kCpu; }
  Whole whole() const override { return {left, 8 * kMiB}; }
  std::size_t& left;
};

}  // namespace

TEST_CASE("an allocator gets what another one of its device does not use") {
  std::size_t free = 7 * kMiB;
  CachingAllocator first(std::make_unique<Shared>(free)), second(std::make_unique<Shared>(free));
  void* kept = first.take(2 * kMiB, "kept");
  first.give(first.take(4 * kMiB, "gone"));
  CHECK(free == kMiB);
  void* block = second.take(5 * kMiB, "wanted");
  CHECK(block != nullptr);
  CHECK(first.stats().reserved == 2 * kMiB);
  CHECK(first.generation() == 1);
  second.give(block);
  first.give(kept);
}

TEST_CASE("a failure says what the device's other allocators hold, and what is held outside") {
  std::size_t free = 7 * kMiB;
  CachingAllocator mine(std::make_unique<Shared>(free)),
      other(std::make_unique<Shared>(free), "of the other");
  void* weights = other.take(6 * kMiB, "parameters");
  std::string text;
  try {
    mine.take(2 * kMiB, "softmax");
  } catch (const OutOfMemory& e) {
    text = e.what();
  }
  CHECK(text.find("6.00 MiB live of 6.00 MiB reserved of the other; largest:") !=
        std::string::npos);
  CHECK(text.find("6.00 MiB  parameters") != std::string::npos);
  CHECK(text.find("1.00 MiB free of 8.00 MiB on the device") != std::string::npos);
  other.give(weights);
}

TEST_CASE("memory that a GPU does not have is no error of the device") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  constexpr std::size_t kPetabyte = std::size_t{1} << 50;
  CachingAllocator memory(memory_source(Device{Device::Kind::cuda, 0}));
  try {
    memory.take(kPetabyte, "attention");
    FAIL("a GPU has a petabyte");
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    CHECK(text.find("\"attention\" on cuda") != std::string::npos);
    CHECK(text.find(" on the device; ") != std::string::npos);
  }
  CHECK_THROWS_AS(cuda::pinned_memory(kPetabyte), OutOfMemory);
  void* block = memory.take(kMiB, "attention");  // the device works on
  memory.give(block);
}

TEST_CASE("memory can be taken while work is captured, and the graph uses it") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const Device gpu{Device::Kind::cuda, 0};
  Stream stream(gpu);
  CachingAllocator memory(memory_source(gpu));
  std::vector<std::uint32_t> given(1024, 7), found(1024, 0);
  const std::size_t bytes = given.size() * sizeof(given[0]);
  void* from = memory.take(bytes, "from");
  void* to = memory.take(bytes, "to");
  stream.copy(from, given.data(), bytes);
  stream.synchronize();
  stream.begin_capture();
  void* late = memory.take(64 * kMiB, "late");  // more than the allocator has
  stream.copy(late, from, bytes);
  stream.copy(to, late, bytes);
  const Graph graph = stream.end_capture();
  stream.launch(graph);
  stream.copy(found.data(), to, bytes);
  stream.synchronize();
  CHECK(found == given);
  for (void* block : {from, to, late})
    memory.give(block);
}
