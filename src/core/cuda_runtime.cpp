#include "core/cuda_runtime.h"

#include <cuda_runtime.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::cuda {

namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it again
  const std::string what =
      cat(call, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(what);
  throw DeviceError(what);
}

cudaStream_t native(const CudaQueue& queue) {
  return static_cast<cudaStream_t>(queue.stream);
}

cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

// While it lives this thread may ask for memory although a stream of it is being captured: memory
// is no part of a graph, and the allocators keep it for as long as graphs may name it.
class MemoryDuringCapture {
 public:
  MemoryDuringCapture() { exchange(); }
  ~MemoryDuringCapture() { exchange(); }
  MemoryDuringCapture(const MemoryDuringCapture&) = delete;
  MemoryDuringCapture& operator=(const MemoryDuringCapture&) = delete;

 private:
  void exchange() {
    if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) cudaGetLastError();
  }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class DeviceMemory final : public MemorySource {
 public:
  DeviceMemory(Device device, std::size_t limit) : device_(device), limit_(limit) {}
  void* obtain(std::size_t bytes) override {
    if (limit_ != 0 && used_ + bytes > limit_) return nullptr;
    check(cudaSetDevice(device_.index), "cudaSetDevice");
    const MemoryDuringCapture allowed;
    void* out = nullptr;
    const cudaError_t error = cudaMalloc(&out, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaMalloc");
    used_ += bytes;
    return out;
  }
  // At the end of the process the runtime may be gone before its memory is given back.
  void release(void* pointer, std::size_t bytes) noexcept override {
    used_ -= bytes;
    const MemoryDuringCapture allowed;
    if (cudaFree(pointer) != cudaSuccess) cudaGetLastError();
  }
  Device device() const override { return device_; }
  // Of the current device, which is this one: a process computes on one.
  Whole whole() const override {
    Whole out;
    if (cudaMemGetInfo(&out.free, &out.total) == cudaSuccess) return out;
    cudaGetLastError();
    return {};
  }

 private:
  Device device_;
  std::size_t limit_, used_ = 0;
};

void destroy_queue(CudaQueue* queue) {
  if (queue->blas != nullptr) queue->release_blas(queue->blas);
  if (queue->sparse != nullptr) queue->release_sparse(queue->sparse);
  cudaFree(queue->scratch);
  cudaStreamDestroy(native(*queue));
  cudaGetLastError();
  delete queue;
}

}  // namespace

int device_count() {
  int count = 0;
  // Any error means none: without a driver the count stays untouched.
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string why_none() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count > 0 ? "" : "no CUDA device is visible";
  cudaGetLastError();
  return cudaGetErrorString(error);
}

std::string why_too_old(int index) {
  constexpr int kLeastMajor = 8;  // of sm_80, the oldest that kernels are built for
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
        "cudaDeviceGetAttribute");
  if (major >= kLeastMajor) return {};
  return cat("cuda:", index, " has compute capability ", major, ".", minor,
             ", but the kernels need 8.0 (A100) or newer");
}

DeviceInfo device_info(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  DeviceInfo out;
  out.name = properties.name;
  out.major = properties.major;
  out.minor = properties.minor;
  out.multiprocessors = properties.multiProcessorCount;
  out.memory = properties.totalGlobalMem;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&out.free_memory, &out.memory);
  if (error == cudaErrorMemoryAllocation)
    cudaGetLastError();  // not even a context fits
  else
    check(error, "cudaMemGetInfo");
  check(cudaDriverGetVersion(&out.driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&out.runtime), "cudaRuntimeGetVersion");
  return out;
}

namespace {

void require_usable(Device device) {
  if (device_count() <= device.index) {
    throw DeviceError(cat("cuda:", device.index, " cannot be used: ",
                          device_count() > 0 ? "there is no such device" : why_none(),
                          "; run on the cpu (train.device: cpu)"));
  }
  if (const std::string why = why_too_old(device.index); !why.empty()) throw DeviceError(why);
}

}  // namespace

std::unique_ptr<MemorySource> device_memory(Device device, std::size_t limit_bytes) {
  require_usable(device);
  return std::make_unique<DeviceMemory>(device, limit_bytes);
}

std::shared_ptr<void> pinned_memory(std::size_t bytes) {
  void* out = nullptr;
  check(cudaMallocHost(&out, bytes),
        cat(human_bytes(static_cast<double>(bytes)), " of page-locked host memory").c_str());
  return {out, [](void* pointer) {
            if (cudaFreeHost(pointer) != cudaSuccess) cudaGetLastError();
          }};
}

std::unique_ptr<CudaQueue, void (*)(CudaQueue*)> make_queue(Device device) {
  require_usable(device);
  check(cudaSetDevice(device.index), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  auto* queue = new CudaQueue;  // NOLINT(cppcoreguidelines-owning-memory): the deleter is ours
  queue->stream = stream;
  return {queue, destroy_queue};
}

void synchronize(const CudaQueue& queue) {
  check(cudaStreamSynchronize(native(queue)), "cudaStreamSynchronize");
}

void copy_async(void* to, const void* from, std::size_t bytes, const CudaQueue& queue) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(queue)), "cudaMemcpyAsync");
}

std::shared_ptr<void> record_event(const CudaQueue& queue) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  std::shared_ptr<void> out(event, [](void* e) {
    if (cudaEventDestroy(event_of(e)) != cudaSuccess) cudaGetLastError();
  });
  check(cudaEventRecord(event, native(queue)), "cudaEventRecord");
  return out;
}

void wait_event(const CudaQueue& queue, void* event) {
  check(cudaStreamWaitEvent(native(queue), event_of(event)), "cudaStreamWaitEvent");
}

void synchronize_event(void* event) {
  check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
}

double milliseconds_between(void* from, void* to) {
  float out = 0;
  check(cudaEventElapsedTime(&out, event_of(from), event_of(to)), "cudaEventElapsedTime");
  return static_cast<double>(out);
}

void begin_capture(CudaQueue& queue) {
  check(cudaStreamBeginCapture(native(queue), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  queue.capturing = true;
}

std::shared_ptr<void> end_capture(CudaQueue& queue) {
  queue.capturing = false;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(native(queue), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
  return {executable, [](void* e) {
            if (cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(e)) != cudaSuccess)
              cudaGetLastError();
          }};
}

void abandon_capture(CudaQueue& queue) noexcept {
  queue.capturing = false;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(native(queue), &graph) == cudaSuccess && graph != nullptr)
    cudaGraphDestroy(graph);
  cudaGetLastError();
}

void launch_graph(void* graph, const CudaQueue& queue) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native(queue)), "cudaGraphLaunch");
}

}  // namespace fovea::cuda
