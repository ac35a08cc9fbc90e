#include "study/gpu_state.h"

#include <array>
#include <cmath>

#include "core/library.h"
#include "core/text.h"
#include "study/nvml.h"

namespace fovea::study {

namespace {

// What NVML calls the clock of the multiprocessors.
constexpr unsigned kClockOfMultiprocessors = 1;

}  // namespace

GpuWatch::GpuWatch(Device device) {
  if (!device.is_cuda()) return;
  nvml_ = std::make_unique<Nvml>();
  why_ = nvml_->why();
  if (!why_.empty()) return;
  device_ = nvml_->find(device);
  if (device_ == nullptr) why_ = cat("NVML does not know the device at ", pci_address(device));
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
