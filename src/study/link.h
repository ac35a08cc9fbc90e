#pragma once
// What connects the ranks of a run, and what it carries at best.

#include <string>

#include "core/device.h"
#include "dist/session.h"

namespace fovea::study {

struct Link {
  std::string name;  // "18 NVLinks"
  double rate = 0;   // bytes/s of a rank in each direction, by its maker's number; 0: unknown
};

// Of this rank's device. Between GPUs of one machine by NVML: the active NVLinks, else the PCIe
// slot; whether they lead to the other ranks is not asked. Over a network and between processes on
// the CPU there is no rate to compare with.
Link link_of(const dist::Session& session, Device device);

// Bytes/s in each direction of one NVLink of a GPU of this compute capability, and of one PCIe lane
// of this generation, framing included; 0 if unknown.
double nvlink_rate(int compute_major);
double pcie_lane_rate(unsigned generation);

}  // namespace fovea::study
