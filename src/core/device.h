#pragma once
// Where a tensor lives. Plain enough for CUDA sources.

#include <cstdint>

namespace fovea {

struct Device {
  // meta runs no kernels and owns no memory: it counts bytes and FLOPs, of the CPU (index 0) or of
  // a GPU (index 1), which need not be there.
  enum class Kind : std::int16_t { cpu, cuda, meta };
  Kind kind = Kind::cpu;
  std::int16_t index = 0;

  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  constexpr bool is_cuda() const { return kind == Kind::cuda; }
  constexpr bool is_meta() const { return kind == Kind::meta; }
  // Where a GPU works with other shapes or dtypes than the CPU does: a GPU, or what stands for one.
  constexpr bool acts_as_cuda() const { return is_cuda() || (is_meta() && index == 1); }
  friend constexpr bool operator==(const Device& a, const Device& b) {
    return a.kind == b.kind && a.index == b.index;
  }
};

constexpr Device kCpu{Device::Kind::cpu, 0};
constexpr Device kMeta{Device::Kind::meta, 0};
constexpr Device kMetaCuda{Device::Kind::meta, 1};

constexpr const char* name_of(Device device) {
  return device.is_cpu() ? "cpu" : device.is_cuda() ? "cuda" : "meta";
}

}  // namespace fovea
