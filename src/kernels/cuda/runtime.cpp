// The host side of launch.cuh: CUDA's status as exceptions.

#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include "core/cuda_queue.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/view.h"
#include "kernels/cuda/device_bytes.h"

namespace fovea::cuda {

void check_call(cudaError_t error, const char* launcher) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it again
  const std::string what =
      cat(launcher, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(what);
  throw DeviceError(what);
}

void check_launch(const char* launcher) {
  check_call(cudaGetLastError(), launcher);
}

void refuse(const char* launcher, const char* why) {
  throw DeviceError(cat(launcher, " on cuda: ", why));
}

void refuse(const char* launcher, DType dtype) {
  throw DeviceError(
      cat(launcher, " on cuda: ", name_of(dtype),
          " has no kernel; use train.precision fp32, tf32, fp16-mixed or bf16-mixed"));
}

void* device_bytes(std::size_t bytes, const char* purpose) {
  int index = 0;
  check_call(cudaGetDevice(&index), purpose);
  const Device device{Device::Kind::cuda, static_cast<std::int16_t>(index)};
  void* out = nullptr;
  cudaError_t error = cudaMalloc(&out, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    trim_device_memory(device);
    error = cudaMalloc(&out, bytes);
  }
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(cat("asked ", human_bytes(static_cast<double>(bytes)), " of ", purpose,
                          " on cuda; ", device_memory_report(device)));
  }
  check_call(error, purpose);
  return out;
}

void* scratch(StreamRef stream, std::size_t bytes, const char* launcher) {
  constexpr std::size_t kRound = std::size_t{1} << 20;
  auto& queue = *static_cast<CudaQueue*>(stream.native);
  if (bytes <= queue.scratch_bytes) return queue.scratch;
  if (queue.capturing) refuse(launcher, "its scratch memory grew during a graph capture");
  const std::size_t rounded = (bytes + kRound - 1) / kRound * kRound;
  // Earlier launches may still use the old memory.
  check_call(cudaStreamSynchronize(static_cast<cudaStream_t>(queue.stream)), launcher);
  check_call(cudaFree(queue.scratch), launcher);
  queue.scratch = nullptr;
  queue.scratch_bytes = 0;
  ++queue.generation;
  queue.scratch = device_bytes(rounded, cat("scratch memory for \"", launcher, "\"").c_str());
  queue.scratch_bytes = rounded;
  return queue.scratch;
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, out = 0;
    check_call(cudaGetDevice(&device), "cudaGetDevice");
    check_call(cudaDeviceGetAttribute(&out, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    return out;
  }();
  return count;
}

}  // namespace fovea::cuda
