#pragma once
// One compute stream per process. On the CPU a stream runs at once; on meta it counts.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/cost.h"
#include "core/device.h"
#include "core/view.h"

namespace fovea {

// A point on a stream. Empty on the CPU and on meta, where work is done when the call returns.
class Event {
 public:
  Event() = default;
  // The host waits until the stream has come so far.
  void synchronize() const;
  // Of work between two recorded events, both reached. 0 on the CPU and on meta.
  static double milliseconds(const Event& from, const Event& to);

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<void> native) : native_(std::move(native)) {}
  std::shared_ptr<void> native_;
};

// Work recorded once by Stream::begin_capture and end_capture, replayed as one launch. CUDA only.
class Graph {
 public:
  Graph() = default;
  bool defined() const { return native_ != nullptr; }

 private:
  friend class Stream;
  explicit Graph(std::shared_ptr<void> native) : native_(std::move(native)) {}
  std::shared_ptr<void> native_;
};

class Stream {
 public:
  // `threads` >= 1 of the host. Throws DeviceError for a device that cannot be used.
  explicit Stream(Device device, int threads = 1);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  int threads() const;
  Event record();
  void wait(const Event& event);
  void synchronize();
  // Between these two, work is recorded and not done: nothing may be read by the host, and scratch
  // memory may not grow. What allocators take then must stay theirs while the graph is used
  // (CachingAllocator::generation). Throws DeviceError.
  void begin_capture();
  Graph end_capture();
  void abandon_capture() noexcept;  // after an error in between
  bool capturing() const;
  // Grows whenever the stream's own scratch memory moves: what was captured before has the old
  // address. 0 on the CPU and on meta.
  std::uint64_t generation() const;
  void launch(const Graph& graph);
  // Whether products of f32 may round their factors to tf32. CUDA only.
  void set_tf32(bool allowed);

  // In stream order: `bytes` from one address to another, device or host. On the CPU at once.
  void copy(void* to, const void* from, std::size_t bytes);
  StreamRef ref() const;
  // The host's threads, for parallel_for: initial values are made there whatever the device. On
  // meta there are none.
  StreamRef host() const;
  CostCounter& cost() { return *cost_; }

 private:
  Device device_;
  std::unique_ptr<class ThreadPool> pool_;
  std::unique_ptr<CostCounter> cost_;
  std::unique_ptr<struct CudaQueue, void (*)(struct CudaQueue*)> queue_;
};

}  // namespace fovea
