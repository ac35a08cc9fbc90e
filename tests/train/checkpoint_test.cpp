#include "train/checkpoint.h"

#include <csignal>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_bench.h"
#include "core/error.h"
#include "train/manifest.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
namespace fs = std::filesystem;

namespace {

struct Saved {
  TemporaryFolder temporary;
  std::string path = temporary.path("step_00000007");
  Bench bench;
  Saved() { bench.save(path); }
};

}  // namespace

TEST_CASE("what was saved is loaded to the bit") {
  const Saved saved;
  Bench other(4, "weight", Precision::fp32, 99);
  CHECK(other.store->masters().values() != saved.bench.store->masters().values());
  const Checkpoint checkpoint(saved.path);
  CHECK(checkpoint.state().step == 7);
  checkpoint.load_model(other.ctx, other.model, *other.store);
  checkpoint.load_optimizer(other.ctx, *other.store);
  CHECK(other.store->masters().values() == saved.bench.store->masters().values());
  const optim::Segment& segment = other.store->segments()[1];
  for (std::int64_t i = segment.begin; i < segment.begin + segment.size; ++i) {
    CHECK(other.store->first_moment().data<float>()[i] == static_cast<float>(i));
    CHECK(other.store->second_moment().data<float>()[i] == static_cast<float>(2 * i));
  }
}

TEST_CASE("the same state gives the same bytes") {
  const Saved saved;
  Bench again;
  const TemporaryFolder temporary;
  again.save(temporary.path("step_00000007"));
  for (const std::string& file : files_of(saved.path)) {
    CHECK(contents(file) ==
          contents(temporary.path("step_00000007") + "/" + fs::path(file).filename().string()));
  }
}

TEST_CASE("a flipped bit anywhere in any file is found, and the file named") {
  const Saved saved;
  for (const std::string& file : files_of(saved.path)) {
    const std::string good = contents(file);
    for (std::size_t at = 0; at < good.size(); at += good.size() < 600 ? 1 : 7) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      overwrite(file, bad);
      CHECK_THROWS_WITH_AS(Checkpoint{saved.path},
                           doctest::Contains(fs::path(file).filename().c_str()), CheckpointError);
    }
    overwrite(file, good);
    CHECK_NOTHROW(Checkpoint{saved.path});
  }
}

TEST_CASE("a cut, a longer and a missing file are found, and named") {
  const Saved saved;
  for (const std::string& file : files_of(saved.path)) {
    const std::string good = contents(file);
    const auto name = doctest::Contains(fs::path(file).filename().c_str());
    for (const std::size_t length : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      overwrite(file, good.substr(0, length));
      CHECK_THROWS_WITH_AS(Checkpoint{saved.path}, name, CheckpointError);
    }
    overwrite(file, good + "x");
    CHECK_THROWS_WITH_AS(Checkpoint{saved.path}, name, CheckpointError);
    fs::remove(file);
    CHECK_THROWS_WITH_AS(Checkpoint{saved.path}, name, CheckpointError);
    overwrite(file, good);
  }
}

TEST_CASE("an altered tensor is named") {
  const Saved saved;
  const std::string file = saved.path + "/model.safetensors";
  std::string bad = contents(file);
  bad[bad.size() - 1] ^= 1;  // the last tensor is the buffer
  overwrite(file, bad);
  CHECK_THROWS_WITH_AS(Checkpoint{saved.path}, doctest::Contains("tensor fixed"), CheckpointError);
}

TEST_CASE("another model is refused with all missing, extra and mis-shaped tensors at once") {
  const Saved saved;
  const Checkpoint checkpoint(saved.path);
  Bench wider(5), renamed(4, "matrix");
  CHECK_THROWS_WITH_AS(checkpoint.load_model(wider.ctx, wider.model, *wider.store),
                       doctest::Contains("mis-shaped  weight [3,4], but the model has [3,5]"),
                       CheckpointError);
  std::string message;
  try {
    checkpoint.load_model(renamed.ctx, renamed.model, *renamed.store);
  } catch (const CheckpointError& e) {
    message = e.what();
  }
  CHECK(message.find("missing     matrix") != std::string::npos);
  CHECK(message.find("extra       weight") != std::string::npos);
}

TEST_CASE("nothing is loaded where something does not fit") {
  const Saved saved;
  Bench wider(5);
  const auto before = wider.store->masters().values();
  CHECK_THROWS_AS(Checkpoint(saved.path).load_model(wider.ctx, wider.model, *wider.store),
                  CheckpointError);
  CHECK(wider.store->masters().values() == before);
}

TEST_CASE("weights are converted to the dtype of another precision") {
  const Saved saved;
  Bench wide(4, "weight", Precision::fp64);
  Checkpoint(saved.path).load_model(wide.ctx, wide.model, *wide.store);
  CHECK(wide.store->masters().dtype() == DType::f64);
  CHECK(wide.store->masters().values()[0] == saved.bench.store->masters().values()[0]);
}

TEST_CASE(
    "a checkpoint that cannot be written leaves the earlier one whole and nothing else behind") {
  const Saved saved;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{700, 700};  // enough for some files, not for all
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    Bench large(400);
    try {
      large.save(saved.temporary.path("step_00000008"));
      ::_exit(0);
    } catch (const IoError& e) {
      ::_exit(std::string(e.what()).find("step_00000008") == std::string::npos ? 1 : 42);
    }
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  CHECK(WEXITSTATUS(state) == 42);
  CHECK(files_of(saved.temporary.path()).size() == 1);
  CHECK_NOTHROW(Checkpoint{saved.path});
}

TEST_CASE("saving a step again replaces its checkpoint") {
  const Saved saved;
  Bench other(4, "weight", Precision::fp32, 99);
  other.save(saved.path);
  CHECK_NOTHROW(Checkpoint{saved.path});
  CHECK(files_of(saved.temporary.path()).size() == 1);
}

TEST_CASE("a manifest cannot name files outside its folder") {
  const Saved saved;
  overwrite(saved.path + "/manifest.json", manifest_json({{"../secret", 1, 2, {}}}));
  CHECK_THROWS_WITH_AS(Checkpoint{saved.path}, doctest::Contains("outside"), CheckpointError);
}
