// What a dry run predicts of a rank of several, and of a GPU.

#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "skip.h"
#include "tiny_run.h"
#include "train/dry_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

// Rank 0 of several whose others have nothing to add.
class Lonely final : public dist::Communicator {
 public:
  explicit Lonely(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void all_reduce(const View& /*values*/, dist::Reduce /*how*/, Stream& /*stream*/) override {}
  void exchange(const View& /*send*/, const View& receive, int /*peer*/,
                Stream& /*stream*/) override {
    std::memset(receive.data, 0,
                static_cast<std::size_t>(receive.numel() * size_of(receive.dtype)));
  }
  void barrier() override {}

 private:
  int size_;
};

Ranks lonely(int size) {
  Ranks out = alone();
  out.all = out.beside = std::make_shared<Lonely>(size);
  return out;
}

MemoryUse measured(const RunConfig& config, Device device, Ranks ranks) {
  Trainer trainer(config, device, nullptr, std::move(ranks));
  trainer.step();
  trainer.step();
  trainer.evaluate(Split::validation, 0);
  trainer.step();
  return trainer.memory();
}

void check_close(std::size_t predicted, std::size_t real) {
  CAPTURE(predicted);
  CAPTURE(real);
  CHECK(std::fabs(static_cast<double>(predicted) / static_cast<double>(real) - 1) < 0.03);
}

std::size_t bytes_of(const DryRun& run, std::string_view kind) {
  for (const MemoryKind& entry : run.kinds) {
    if (entry.name == kind) return entry.bytes;
  }
  FAIL("no kind ", std::string(kind));
  return 0;
}

using Overrides = std::vector<std::string>;

// Large enough for shards: some 3.3 million parameters.
RunConfig wide(Overrides more = {}) {
  more.insert(more.begin(), {"model.n_embd=256", "model.n_layer=4"});
  return tiny_config("unused", more);
}

}  // namespace

TEST_CASE("the predicted peak of a rank of several is within 3 % of a measured one") {
  for (const int ranks : {2, 4, 8}) {
    for (const Overrides& how :
         {Overrides{"distributed.zero=0"}, Overrides{"distributed.zero=1"},
          Overrides{"distributed.zero=0", "distributed.reproducible=false",
                    "distributed.reduce_dtype=bf16", "train.precision=bf16-mixed"},
          Overrides{"distributed.zero=1", "train.precision=bf16-mixed",
                    "distributed.bucket_mb=1"}}) {
      const RunConfig config = wide(how);
      CAPTURE(config.resolved.yaml());
      CAPTURE(ranks);
      check_close(dry_run(config, ranks).memory.total(),
                  measured(for_ranks(config, ranks), kCpu, lonely(ranks)).total());
    }
  }
}

TEST_CASE("ZeRO stage 1 divides the moments, and nothing else") {
  const DryRun whole = dry_run(wide(), 4), part = dry_run(wide({"distributed.zero=1"}), 4);
  const std::size_t moments = bytes_of(whole, "moments");
  // Shards are cut between chunks of the norm: two moments of 256 KiB.
  CHECK(bytes_of(part, "moments") >= moments / 4);
  CHECK(bytes_of(part, "moments") <= moments / 4 + (std::size_t{512} << 10));
  for (const char* kind : {"masters", "compute_copies", "gradients", "activations"})
    CHECK(bytes_of(part, kind) == bytes_of(whole, kind));
}

TEST_CASE("the kinds of memory add up to the peak, and the JSON names them") {
  const DryRun run = dry_run(wide({"distributed.zero=1", "train.precision=bf16-mixed"}), 2);
  std::size_t sum = 0;
  for (const MemoryKind& kind : run.kinds)
    sum += kind.bytes;
  CHECK(sum == run.memory.total());
  CHECK(bytes_of(run, "compute_copies") * 2 == bytes_of(run, "masters"));
  const std::string json = dry_run_json(run);
  CHECK(json.find("\"bytes_by_kind\":{\"masters\":") != std::string::npos);
  CHECK(json.find("\"ranks\":2,\"zero\":1,") != std::string::npos);
  CHECK(dry_run_text(run).find("each of 2 processes, ZeRO stage 1") != std::string::npos);
}

TEST_CASE("a rank of several has its share of the micro-batches, and fewer gradient buffers") {
  CHECK(dry_run(wide()).gradient_buffers == 4);     // of eight micro-batches
  CHECK(dry_run(wide(), 4).gradient_buffers == 2);  // of two
  CHECK(dry_run(wide(), 8).gradient_buffers == 1);
  CHECK(dry_run(wide(), 4).micro_batches == 8);
}

TEST_CASE("a dry run refuses a number of ranks that the run would") {
  CHECK_THROWS_AS(dry_run(wide(), 3), ConfigError);
  CHECK_THROWS_AS(dry_run(wide(), 16), ConfigError);
}

TEST_CASE("a GPU is predicted where there is none: its logits are in 16 bits") {
  const Overrides table = {"data.markov.vocab=8192", "train.precision=bf16-mixed",
                           "train.micro_batch_size=16"};
  Overrides on_gpu = table, on_cpu = table;
  on_gpu.emplace_back("train.device=cuda");
  on_cpu.emplace_back("train.device=cpu");
  const DryRun gpu = dry_run(tiny_config("unused", on_gpu)),
               cpu = dry_run(tiny_config("unused", on_cpu));
  CHECK(gpu.on_gpu);
  CHECK_FALSE(cpu.on_gpu);
  const std::size_t logits = 16 * 16 * 8192;
  CHECK(cpu.memory.activations - gpu.memory.activations == 2 * logits);
}

TEST_CASE("the predicted peak of a GPU is within 3 % of the measured one") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const Overrides& how :
       {Overrides{"train.precision=bf16-mixed", "data.markov.vocab=8192"},
        Overrides{"train.precision=fp16-mixed", "model.mlp=swiglu", "model.norm=rms"},
        Overrides{"train.precision=fp32", "train.recompute=true"}}) {
    const RunConfig config = wide([&] {
      Overrides all = how;
      all.insert(all.end(), {"train.device=cuda", "model.block_size=256",
                             "train.micro_batch_size=16", "model.n_head=4"});
      return all;
    }());
    CAPTURE(config.resolved.yaml());
    check_close(dry_run(config).memory.total(),
                measured(config, {Device::Kind::cuda, 0}, alone()).total());
  }
}
