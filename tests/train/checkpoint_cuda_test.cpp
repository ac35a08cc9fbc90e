// Checkpoints of what lies on a GPU. Skipped, visibly, without one.

#include <doctest/doctest.h>

#include "checkpoint_bench.h"
#include "core/cuda_runtime.h"
#include "kernels/basic.h"
#include "skip.h"
#include "train/checkpoint_writer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

struct OnGpu {
  Device device{Device::Kind::cuda, 0};
  Stream stream{device, 1};
  CachingAllocator activations{memory_source(device)};
  Ctx ctx{device, stream, activations};
  Toy model{4000};
  optim::ParameterStore store{ctx, model, optim::StoreMode::train};
  void fill_all(double value) {
    for (const Tensor* flat : {&store.masters(), &store.first_moment(), &store.second_moment()})
      FOVEA_ON(device, fill(stream.ref(), flat->view(), value));
  }
};

}  // namespace

TEST_CASE("a GPU's checkpoint holds what stood there when save was called, and is read back") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const TemporaryFolder temporary;
  OnGpu gpu;
  for (const bool async : {false, true}) {
    const std::string path = temporary.path(async ? "behind" : "waiting");
    CheckpointWriter writer(gpu.stream, gpu.model, gpu.store, {.async = async});
    for (int again = 0; again < 3; ++again) {
      gpu.fill_all(1.5 + again);
      writer.save(path, Bench::state(), "{}\n");
      gpu.fill_all(-1);
      writer.wait();
    }
    const Checkpoint checkpoint(path);
    checkpoint.load_model(gpu.ctx, gpu.model, gpu.store);
    checkpoint.load_optimizer(gpu.ctx, gpu.store);
    for (const Tensor* flat : {&gpu.store.masters(), &gpu.store.first_moment()}) {
      const std::vector<double> values = flat->to(kCpu, gpu.stream).values();
      CHECK(values.front() == 3.5);
      CHECK(values[11'999] == 3.5);
    }
  }
  for (const char* name : {"/model.safetensors", "/optimizer.safetensors", "/manifest.json"})
    CHECK(contents(temporary.path("waiting") + name) == contents(temporary.path("behind") + name));
}
