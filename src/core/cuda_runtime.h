#pragma once
// The few CUDA runtime calls that core makes; where memory runs out they throw OutOfMemory.
// cuda_runtime.cpp makes them; without_cuda.cpp stands in its place in a build without CUDA: no
// device there, and every call throws DeviceError.

#include <cstddef>
#include <memory>
#include <string>

#include "core/cuda_queue.h"
#include "core/device.h"
#include "core/memory.h"

namespace fovea::cuda {

// Devices that can be used; 0 without a driver. `why_none` says in a sentence why there is none.
int device_count();
std::string why_none();

// Why no kernel runs on that device, in a sentence; empty if they do. Makes no context.
std::string why_too_old(int index);

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory = 0, free_memory = 0;  // bytes; none are free where no context fits
  int driver = 0, runtime = 0;              // 13000 is CUDA 13.0
};
DeviceInfo device_info(int index);

// cudaMalloc'd memory. Obtains null where the device has no more, or past `limit_bytes` (0: none).
std::unique_ptr<MemorySource> device_memory(Device device, std::size_t limit_bytes);
// Page-locked host memory, for copies that run behind the host's back.
std::shared_ptr<void> pinned_memory(std::size_t bytes);

// A stream of its own on the device, which becomes the calling thread's current one.
std::unique_ptr<CudaQueue, void (*)(CudaQueue*)> make_queue(Device device);
void synchronize(const CudaQueue& queue);
// In stream order; either side may be host memory. Pageable host memory may be reused when the call
// returns, except as a target: synchronise first.
void copy_async(void* to, const void* from, std::size_t bytes, const CudaQueue& queue);

std::shared_ptr<void> record_event(const CudaQueue& queue);
void wait_event(const CudaQueue& queue, void* event);  // the stream waits
void synchronize_event(void* event);                   // the host waits
double milliseconds_between(void* from, void* to);     // both done

void begin_capture(CudaQueue& queue);
std::shared_ptr<void> end_capture(CudaQueue& queue);  // an executable graph
void abandon_capture(CudaQueue& queue) noexcept;
void launch_graph(void* graph, const CudaQueue& queue);

}  // namespace fovea::cuda
