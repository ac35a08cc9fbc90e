#pragma once
// NVIDIA's management library, loaded at run time. Its interface as far as it is needed: functions
// return 0 for success, handles are opaque.

#include <string>

#include "core/device.h"
#include "core/library.h"

namespace fovea::study {

class Nvml {
 public:
  // Starts it. Not there is no error: see why().
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& why() const { return why_; }  // it does not run; empty if it does
  // The function, or null if NVML does not run or lacks it.
  template <class F>
  F* function(const char* name) const {
    return started_ ? library_.function<F>(name) : nullptr;
  }
  // The handle of a GPU, or null.
  void* find(Device device) const;

 private:
  Library library_;
  bool started_ = false;
  std::string why_;
};

}  // namespace fovea::study
