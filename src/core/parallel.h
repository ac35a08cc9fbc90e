#pragma once
// Threads for CPU kernels. Work is cut into fixed chunks, so results never depend on the thread
// count.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/view.h"

namespace fovea {

class ThreadPool {
 public:
  // The calling thread works too: `threads` - 1 are started. threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls task(context, chunk) for every chunk in [0, chunks), in any order, and returns when all
  // are done. The first exception of a chunk is thrown again here. Not reentrant.
  void run(std::int64_t chunks, void (*task)(void*, std::int64_t), void* context);

 private:
  void work();
  void drain();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  void (*task_)(void*, std::int64_t) = nullptr;
  void* context_ = nullptr;
  std::int64_t chunks_ = 0, next_ = 0, pending_ = 0;
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

// Calls fn(begin, end) over [0, n) in chunks of `grain`: the cuts depend on n and grain only.
template <class F>
void parallel_for(StreamRef stream, std::int64_t n, std::int64_t grain, F&& fn) {
  struct Work {
    std::remove_reference_t<F>* fn;
    std::int64_t n, grain;
  } work{&fn, n, grain < 1 ? 1 : grain};
  const std::int64_t chunks = (n + work.grain - 1) / work.grain;
  auto task = [](void* context, std::int64_t chunk) {
    auto& w = *static_cast<Work*>(context);
    const std::int64_t begin = chunk * w.grain;
    (*w.fn)(begin, begin + w.grain < w.n ? begin + w.grain : w.n);
  };
  auto* pool = static_cast<ThreadPool*>(stream.native);
  if (pool == nullptr || chunks <= 1 || pool->threads() == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      task(&work, chunk);
  } else {
    pool->run(chunks, +task, &work);
  }
}

}  // namespace fovea
