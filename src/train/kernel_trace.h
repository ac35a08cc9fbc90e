#pragma once
// When each piece of work ran on the GPU, as CUPTI records it. CUPTI is looked for at run time.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fovea::train {

struct KernelRecord {
  std::string name;                  // a kernel's, short; "copy" or "set" of memory
  std::uint64_t start = 0, end = 0;  // nanoseconds
  std::uint32_t stream = 0;
};

// One at a time in a process: CUPTI calls back without saying for whom.
class KernelTrace {
 public:
  // Records from now on; make it before graphs are captured. Throws DeviceError, which says where
  // CUPTI is to be had, if it cannot be loaded.
  KernelTrace();
  ~KernelTrace();
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // What was done since the last call, in the order of its start. Synchronise the stream before.
  std::vector<KernelRecord> take();

 private:
  struct Cupti;
  std::unique_ptr<Cupti> cupti_;
};

// Why CUPTI cannot be loaded, in a sentence that says where it is to be had; empty if it can.
std::string why_no_kernel_trace();

// "layer_norm_kernel<bf16>" of a mangled or plain name: without namespaces of ours, return type and
// parameters.
std::string short_kernel_name(const char* name);

}  // namespace fovea::train
