#pragma once
// Where a tensor lives. Plain enough for CUDA sources.

#include <cstdint>

namespace fovea {

struct Device {
  // meta runs no kernels and owns no memory: it counts bytes and FLOPs.
  enum class Kind : std::int16_t { cpu, cuda, meta };
  Kind kind = Kind::cpu;
  std::int16_t index = 0;

  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  constexpr bool is_cuda() const { return kind == Kind::cuda; }
  constexpr bool is_meta() const { return kind == Kind::meta; }
  friend constexpr bool operator==(const Device& a, const Device& b) {
    return a.kind == b.kind && a.index == b.index;
  }
};

constexpr Device kCpu{Device::Kind::cpu, 0};
constexpr Device kMeta{Device::Kind::meta, 0};

constexpr const char* name_of(Device device) {
  return device.is_cpu() ? "cpu" : device.is_cuda() ? "cuda" : "meta";
}

}  // namespace fovea
