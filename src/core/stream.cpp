#include "core/stream.h"

#include "core/error.h"
#include "core/parallel.h"

namespace fovea {

Stream::Stream(Device device, int threads)
    : device_(device), cost_(std::make_unique<CostCounter>()) {
  if (device.is_cuda()) {
    throw DeviceError(
        "this build has no CUDA backend: build with FOVEA_CUDA=ON, or run on the cpu");
  }
  if (device.is_cpu()) pool_ = std::make_unique<ThreadPool>(threads);
}

Stream::~Stream() = default;

int Stream::threads() const {
  return pool_ ? pool_->threads() : 1;
}

StreamRef Stream::ref() const {
  if (device_.is_meta()) return {cost_.get()};
  return {pool_.get()};
}

}  // namespace fovea
