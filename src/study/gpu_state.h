#pragma once
// What a GPU is doing, by NVML, and the versions of what serves it. Each is found at run time.

#include <memory>
#include <optional>
#include <string>

#include "core/device.h"
#include "train/json_text.h"

namespace fovea::study {

struct GpuState {
  std::optional<double> clock_mhz;  // of its multiprocessors
  std::optional<double> power_w;
  std::string why;  // what is absent, and why; empty if nothing is
};

// Asks NVML, which it starts once, so that now() is quick.
class GpuWatch {
 public:
  explicit GpuWatch(Device device);
  ~GpuWatch();
  // Of this moment: ask while the device works. Nothing on a device that is no GPU.
  GpuState now() const;
  std::string driver_version() const;  // "580.82.07", or ""

 private:
  std::unique_ptr<class Nvml> nvml_;
  void* device_ = nullptr;
  std::string why_;
};

// ", at 1755 MHz and 640 W"; "" where nothing is known.
std::string text_of(const GpuState& state);
// The keys clock_mhz, power_w (null where unknown) and no_clock.
void add_to(train::JsonObject& record, const GpuState& state);

// "2.27.3" of the NCCL that could be loaded, or "".
std::string nccl_version();
// "13.1.0" of cuBLASLt, or "" in a build without CUDA.
std::string cublaslt_version();
// The device's address on the PCI bus, "0000:1B:00.0", or "".
std::string pci_address(Device device);

}  // namespace fovea::study
