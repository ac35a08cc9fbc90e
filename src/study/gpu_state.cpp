#include "study/gpu_state.h"

#include <array>
#include <cmath>

#include "core/library.h"
#include "core/text.h"

namespace fovea::study {

namespace {

// NVML's interface, as far as it is needed: 0 is success, handles are opaque.
constexpr const char* kNvml = "libnvidia-ml.so.1";
constexpr unsigned kClockOfMultiprocessors = 1;

}  // namespace

class GpuWatch::Nvml {
 public:
  Nvml() : library_(kNvml) {
    const auto start = library_.function<int()>("nvmlInit_v2");
    if (start == nullptr) {
      why_ = library_.defined() ? "NVML lacks nvmlInit_v2" : library_.why();
    } else if (const int error = start(); error != 0) {
      why_ = cat("nvmlInit_v2 gives ", error);
    } else {
      started_ = true;
    }
  }
  ~Nvml() {
    const auto stop = library_.function<int()>("nvmlShutdown");
    if (started_ && stop != nullptr) stop();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& why() const { return why_; }
  // The function, or null if NVML does not run.
  template <class F>
  F* function(const char* name) const {
    return started_ ? library_.function<F>(name) : nullptr;
  }

 private:
  Library library_;
  bool started_ = false;
  std::string why_;
};

GpuWatch::GpuWatch(Device device) {
  if (!device.is_cuda()) return;
  nvml_ = std::make_unique<Nvml>();
  why_ = nvml_->why();
  if (!why_.empty()) return;
  const std::string address = pci_address(device);
  const auto find = nvml_->function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (find == nullptr || find(address.c_str(), &device_) != 0)
    why_ = cat("NVML does not know the device at ", address);
}

GpuWatch::~GpuWatch() = default;

GpuState GpuWatch::now() const {
  GpuState out;
  out.why = why_;
  if (nvml_ == nullptr || !why_.empty()) return out;
  unsigned value = 0;
  const auto clock = nvml_->function<int(void*, unsigned, unsigned*)>("nvmlDeviceGetClockInfo");
  if (clock != nullptr && clock(device_, kClockOfMultiprocessors, &value) == 0)
    out.clock_mhz = value;
  const auto power = nvml_->function<int(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
  if (power != nullptr && power(device_, &value) == 0) out.power_w = value / 1000.0;
  if (!out.clock_mhz || !out.power_w) out.why = "NVML does not tell the clock or the power here";
  return out;
}

std::string text_of(const GpuState& state) {
  std::string out;
  if (state.clock_mhz) out += cat(", at ", *state.clock_mhz, " MHz");
  if (state.power_w)
    out += cat(state.clock_mhz ? " and " : ", at ", std::lround(*state.power_w), " W");
  return out;
}

void add_to(train::JsonObject& record, const GpuState& state) {
  const auto add = [&](std::string_view key, const std::optional<double>& value) {
    record.raw(key, value ? train::json_number(*value) : "null");
  };
  add("clock_mhz", state.clock_mhz);
  add("power_w", state.power_w);
  record.add("no_clock", state.why);
}

std::string GpuWatch::driver_version() const {
  if (nvml_ == nullptr) return {};
  std::array<char, 96> text{};
  const auto ask = nvml_->function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (ask == nullptr || ask(text.data(), text.size() - 1) != 0) return {};
  return text.data();
}

std::string nccl_version() {
  const Library nccl("libnccl.so.2");
  int version = 0;  // 22703 is 2.27.3
  const auto ask = nccl.function<int(int*)>("ncclGetVersion");
  if (ask == nullptr || ask(&version) != 0) return {};
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace fovea::study
