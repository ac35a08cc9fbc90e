#include "study/link.h"

#include <algorithm>

#include "core/cuda_runtime.h"
#include "core/text.h"
#include "study/nvml.h"

namespace fovea::study {

namespace {

constexpr unsigned kMostNvLinks = 36;

unsigned active_nvlinks(const Nvml& nvml, void* gpu) {
  const auto state = nvml.function<int(void*, unsigned, int*)>("nvmlDeviceGetNvLinkState");
  unsigned out = 0;
  for (unsigned i = 0; state != nullptr && i < kMostNvLinks; ++i) {
    int active = 0;
    if (state(gpu, i, &active) == 0 && active != 0) ++out;
  }
  return out;
}

// What the slot can do: an idle one runs slower.
unsigned most_of_pcie(const Nvml& nvml, void* gpu, const char* what) {
  const auto ask = nvml.function<int(void*, unsigned*)>(what);
  unsigned out = 0;
  return ask != nullptr && ask(gpu, &out) == 0 ? out : 0;
}

Link between_gpus(Device device) {
  const Nvml nvml;
  void* const gpu = nvml.find(device);
  if (gpu == nullptr) return {"between GPUs, unknown without NVML", 0};
  if (const unsigned links = active_nvlinks(nvml, gpu); links > 0) {
    // By the GPU: NVML has been seen to give the version of the next generation's links.
    const double each = nvlink_rate(cuda::device_info(device.index).major);
    return {cat(links, links == 1 ? " NVLink" : " NVLinks"), links * each};
  }
  const unsigned generation = most_of_pcie(nvml, gpu, "nvmlDeviceGetMaxPcieLinkGeneration");
  const unsigned lanes = most_of_pcie(nvml, gpu, "nvmlDeviceGetMaxPcieLinkWidth");
  return {cat("PCIe ", generation, " x", lanes), lanes * pcie_lane_rate(generation)};
}

}  // namespace

double nvlink_rate(int compute_major) {
  if (compute_major == 6) return 20e9;
  if (compute_major >= 7 && compute_major <= 9) return 25e9;
  return compute_major == 10 ? 50e9 : 0;
}

double pcie_lane_rate(unsigned generation) {
  switch (generation) {  // bits a second on the wire, less the code's
    case 1:
      return 2.5e9 / 8 * 8 / 10;
    case 2:
      return 5e9 / 8 * 8 / 10;
    case 3:
      return 8e9 / 8 * 128 / 130;
    case 4:
      return 16e9 / 8 * 128 / 130;
    case 5:
      return 32e9 / 8 * 128 / 130;
    case 6:
      return 64e9 / 8;
    default:
      return 0;
  }
}

Link link_of(const dist::Session& session, Device device) {
  const auto& peers = session.peers();
  const bool one_host = std::all_of(peers.begin(), peers.end(), [&](const dist::Peer& peer) {
    return peer.host == peers.front().host;
  });
  if (device.is_cuda()) return one_host ? between_gpus(device) : Link{"a network between GPUs", 0};
  return {one_host ? "TCP within one machine" : "TCP between machines", 0};
}

}  // namespace fovea::study
