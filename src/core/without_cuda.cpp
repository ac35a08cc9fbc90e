// Stands in for this folder's cuda_ files in a build without CUDA.

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/range.h"

namespace fovea::cuda {

namespace {

[[noreturn]] void fail() {
  throw DeviceError("this build has no CUDA backend: build with FOVEA_CUDA=ON, or run on the cpu");
}

}  // namespace

int device_count() {
  return 0;
}

std::string why_none() {
  return "this build has no CUDA backend";
}

std::string why_too_old(int /*index*/) {
  fail();
}

DeviceInfo device_info(int /*index*/) {
  fail();
}

std::unique_ptr<MemorySource> device_memory(Device /*device*/, std::size_t /*limit_bytes*/) {
  fail();
}

std::shared_ptr<void> pinned_memory(std::size_t /*bytes*/) {
  fail();
}

std::unique_ptr<CudaQueue, void (*)(CudaQueue*)> make_queue(Device /*device*/) {
  fail();
}

void synchronize(const CudaQueue& /*queue*/) {
  fail();
}

void copy_async(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/,
                const CudaQueue& /*queue*/) {
  fail();
}

std::shared_ptr<void> record_event(const CudaQueue& /*queue*/) {
  fail();
}

void wait_event(const CudaQueue& /*queue*/, void* /*event*/) {
  fail();
}

void synchronize_event(void* /*event*/) {
  fail();
}

double milliseconds_between(void* /*from*/, void* /*to*/) {
  fail();
}

void begin_capture(CudaQueue& /*queue*/) {
  fail();
}

std::shared_ptr<void> end_capture(CudaQueue& /*queue*/) {
  fail();
}

void abandon_capture(CudaQueue& /*queue*/) noexcept {}

void launch_graph(void* /*graph*/, const CudaQueue& /*queue*/) {
  fail();
}

}  // namespace fovea::cuda

namespace fovea {

Range::Range(const char* /*name*/) {}

Range::~Range() = default;

}  // namespace fovea
