#pragma once
// Named spans of the host's time for profilers that show them beside the GPU's work (NVTX).

namespace fovea {

// From construction to destruction, nested as scopes are. Costs nothing worth measuring while no
// tool is attached, and does nothing in a build without CUDA.
class Range {
 public:
  explicit Range(const char* name);  // a static string
  ~Range();  // NOLINT(performance-trivially-destructible): only without CUDA
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace fovea
