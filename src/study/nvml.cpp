#include "study/nvml.h"

#include "core/text.h"
#include "study/gpu_state.h"

namespace fovea::study {

Nvml::Nvml() : library_("libnvidia-ml.so.1") {
  const auto start = library_.function<int()>("nvmlInit_v2");
  if (start == nullptr) {
    why_ = library_.defined() ? "NVML lacks nvmlInit_v2" : library_.why();
  } else if (const int error = start(); error != 0) {
    why_ = cat("nvmlInit_v2 gives ", error);
  } else {
    started_ = true;
  }
}

Nvml::~Nvml() {
  const auto stop = library_.function<int()>("nvmlShutdown");
  if (started_ && stop != nullptr) stop();
}

void* Nvml::find(Device device) const {
  const auto ask = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  void* out = nullptr;
  if (ask == nullptr || ask(pci_address(device).c_str(), &out) != 0) return nullptr;
  return out;
}

}  // namespace fovea::study
