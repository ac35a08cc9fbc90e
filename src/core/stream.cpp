#include "core/stream.h"

#include <cstring>

#include "core/cuda_queue.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/parallel.h"

namespace fovea {

namespace {

std::unique_ptr<CudaQueue, void (*)(CudaQueue*)> queue_of(Device device) {
  if (device.is_cuda()) return cuda::make_queue(device);
  return {nullptr, [](CudaQueue* /*none*/) {}};
}

}  // namespace

void Event::synchronize() const {
  if (native_) cuda::synchronize_event(native_.get());
}

double Event::milliseconds(const Event& from, const Event& to) {
  if (!from.native_ || !to.native_) return 0;
  return cuda::milliseconds_between(from.native_.get(), to.native_.get());
}

Stream::Stream(Device device, int threads)
    : device_(device), cost_(std::make_unique<CostCounter>()), queue_(queue_of(device)) {
  if (!device.is_meta()) pool_ = std::make_unique<ThreadPool>(threads);
}

Stream::~Stream() = default;

int Stream::threads() const {
  return pool_ ? pool_->threads() : 1;
}

Event Stream::record() {
  return queue_ ? Event(cuda::record_event(*queue_)) : Event();
}

void Stream::wait(const Event& event) {
  if (queue_ && event.native_) cuda::wait_event(*queue_, event.native_.get());
}

void Stream::synchronize() {
  if (queue_) cuda::synchronize(*queue_);
}

void Stream::begin_capture() {
  FOVEA_ASSERT(queue_ != nullptr);
  cuda::begin_capture(*queue_);
}

Graph Stream::end_capture() {
  FOVEA_ASSERT(capturing());
  return Graph(cuda::end_capture(*queue_));
}

void Stream::abandon_capture() noexcept {
  if (capturing()) cuda::abandon_capture(*queue_);
}

bool Stream::capturing() const {
  return queue_ && queue_->capturing;
}

std::uint64_t Stream::generation() const {
  return queue_ ? queue_->generation : 0;
}

void Stream::launch(const Graph& graph) {
  FOVEA_ASSERT(queue_ != nullptr && graph.defined());
  cuda::launch_graph(graph.native_.get(), *queue_);
}

void Stream::set_tf32(bool allowed) {
  if (queue_) queue_->tf32 = allowed;
}

void Stream::copy(void* to, const void* from, std::size_t bytes) {
  if (queue_) {
    cuda::copy_async(to, from, bytes, *queue_);
  } else if (device_.is_cpu() && bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

StreamRef Stream::host() const {
  return {pool_.get()};
}

StreamRef Stream::ref() const {
  if (device_.is_meta()) return {cost_.get()};
  if (queue_) return {queue_.get()};
  return {pool_.get()};
}

}  // namespace fovea
