#include "core/parallel.h"

#include <exception>

#include "core/error.h"
#include "core/text.h"

namespace fovea {

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw ConfigError(cat("threads is ", threads, ", but must be at least 1"));
  for (int i = 1; i < threads; ++i)
    workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run(std::int64_t chunks, void (*task)(void*, std::int64_t), void* context) {
  std::unique_lock lock(mutex_);
  task_ = task;
  context_ = context;
  chunks_ = chunks;
  next_ = 0;
  pending_ = chunks;
  failure_ = nullptr;
  ++generation_;
  lock.unlock();
  wake_.notify_all();
  lock.lock();
  drain();
  done_.wait(lock, [this] { return pending_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

// Takes chunks until none is left. Called and left with the mutex held.
void ThreadPool::drain() {
  while (next_ < chunks_) {
    const std::int64_t chunk = next_++;
    mutex_.unlock();
    std::exception_ptr failure;
    try {
      task_(context_, chunk);
    } catch (...) {
      failure = std::current_exception();
    }
    mutex_.lock();
    if (failure && !failure_) failure_ = failure;
    if (--pending_ == 0) done_.notify_all();
  }
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    drain();
  }
}

}  // namespace fovea
