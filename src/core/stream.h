#pragma once
// One compute stream per process. On the CPU a stream runs at once; on meta it counts.

#include <cstdint>
#include <memory>

#include "core/device.h"
#include "core/view.h"

namespace fovea {

// What a meta stream has counted.
struct CostCounter {
  double flops = 0;  // multiply-add = 2
  double bytes = 0;  // of every view handed to a kernel
  std::int64_t launches = 0;
};

// A point on a stream. Empty on the CPU and on meta, where work is done when the call returns.
class Event {};

class Stream {
 public:
  // `threads` >= 1 counts on the CPU only. Throws DeviceError for a device this build cannot serve.
  explicit Stream(Device device, int threads = 1);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  int threads() const;
  Event record() { return {}; }
  void wait(const Event& /*event*/) {}
  void synchronize() {}
  bool capturing() const { return false; }
  StreamRef ref() const;
  CostCounter& cost() { return *cost_; }

 private:
  Device device_;
  std::unique_ptr<class ThreadPool> pool_;
  std::unique_ptr<CostCounter> cost_;
};

}  // namespace fovea
