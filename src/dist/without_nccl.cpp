// Stands in for cuda_nccl.cpp in a build without CUDA or without NCCL's header.

#include "core/error.h"
#include "dist/communicator.h"

namespace fovea::dist {

std::unique_ptr<Communicator> nccl(Session& /*session*/, Device /*device*/, int /*blocks*/) {
  throw DeviceError(
      "GPUs are connected by NCCL, which is not built in: build with FOVEA_CUDA=ON where nccl.h is "
      "(Debian's libnccl-dev, in non-free, or NVIDIA's package of that name)");
}

}  // namespace fovea::dist
