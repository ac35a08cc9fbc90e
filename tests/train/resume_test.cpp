#include "train/resume.h"

#include <doctest/doctest.h>

#include "tiny_run.h"
#include "train/environment.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

TEST_CASE("what changes no result may change between starts") {
  const RunConfig run = tiny_config("a");
  for (const char* change : {"train.threads=2", "train.recompute=true", "train.micro_order=shuffle",
                             "train.micro_batch_size=4", "train.max_time=5m", "train.max_steps=20",
                             "log.interval=3", "ckpt.interval=3", "ckpt.keep_last=7",
                             "train.gemm_table=table.yaml", "eval.interval=5", "eval.patience=3"}) {
    CHECK_MESSAGE(conflicting_keys(run, tiny_config("b", {change})).empty(), change);
  }
}

TEST_CASE("what changes results is named with both values") {
  const RunConfig run = tiny_config("a");
  for (const char* change :
       {"seed=8", "model.n_layer=3", "data.markov.vocab=16", "train.precision=fp64",
        "train.global_batch_size=32", "train.max_norm=2", "optim.weight_decay=0.2",
        "sched.warmup_steps=5", "eval.max_batches=1", "ops.fuse=false"}) {
    const std::vector<std::string> keys = conflicting_keys(run, tiny_config("a", {change}));
    REQUIRE_MESSAGE(keys.size() == 1, change);
    const std::string key = std::string(change).substr(0, std::string(change).find('='));
    CHECK_MESSAGE(keys[0].starts_with(key + ": "), keys[0]);
  }
}

TEST_CASE("a group's learning rate must not change, whatever the order of the groups") {
  const RunConfig one = tiny_config("a", {"optim.lr_scale={'*.bias': 2, wte.*: 3}"});
  using Keys = std::vector<std::string>;
  CHECK(conflicting_keys(one, tiny_config("a", {"optim.lr_scale={wte.*: 3, '*.bias': 2}"})) ==
        Keys{});
  CHECK(conflicting_keys(one, tiny_config("a", {"optim.lr_scale={'*.bias': 2, wte.*: 4}"})) ==
        Keys{"optim.lr_scale.wte.*: 3 -> 4"});
  CHECK(conflicting_keys(one, tiny_config("a", {"optim.lr_scale={wte.*: 3}"})) ==
        Keys{"optim.lr_scale.*.bias: 2 -> none"});
  CHECK(conflicting_keys(tiny_config("a"), one).size() == 2);
}

TEST_CASE("another processor's arithmetic is told apart") {
  CHECK(difference({"avx2", "Haswell", "fp32"}, {"avx2", "Haswell", "fp32"}).empty());
  CHECK(difference({"avx2", "Haswell", "fp32"}, {"avx512", "SkylakeX", "fp32"}) ==
        "isa avx2 -> avx512, BLAS core Haswell -> SkylakeX");
}
