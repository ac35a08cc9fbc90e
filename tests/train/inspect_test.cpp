#include "train/inspect.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "tiny_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

TEST_CASE("a run folder and its checkpoint are recognised and summed up") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=2"});
  const Inspection run = inspect(path), checkpoint = inspect(newest(path));
  CHECK(run.kind == "run folder");
  CHECK(run.text.find("finished, step 2 of 2") != std::string::npos);
  CHECK(checkpoint.kind == "checkpoint");
  CHECK(checkpoint.text.find("step 2, whole") != std::string::npos);
  CHECK(checkpoint.json.find("\"task\":\"lm\"") != std::string::npos);
}

TEST_CASE("a torn checkpoint is a checkpoint error") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=2"});
  const std::string checkpoint = newest(path);
  overwrite(checkpoint + "/config.json", "{}");
  CHECK_THROWS_WITH_AS(inspect(checkpoint), doctest::Contains("config.json"), CheckpointError);
  CHECK_THROWS_AS(inspect(path), CheckpointError);
  std::filesystem::remove(checkpoint + "/manifest.json");
  CHECK_THROWS_AS(inspect(checkpoint), CheckpointError);
}

TEST_CASE("safetensors, configs and text are recognised") {
  const TemporaryFolder temporary;
  const std::vector<data::NamedTensor> tensors = {
      {"a", Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}, DType::f32)}};
  data::write_safetensors(temporary.path("x.safetensors"), tensors);
  const Inspection file = inspect(temporary.path("x.safetensors"));
  CHECK(file.kind == "safetensors");
  CHECK(file.text.find("a F32 [2,2]") != std::string::npos);
  overwrite(temporary.path("x.yaml"), tiny_config("out").resolved.yaml());
  CHECK(inspect(temporary.path("x.yaml")).kind == "config");
  overwrite(temporary.path("x.txt"), "hello\nworld\n");
  CHECK(inspect(temporary.path("x.txt")).text.find("2 lines") != std::string::npos);
}

TEST_CASE("what is wrong decides the exit code") {
  const TemporaryFolder temporary;
  overwrite(temporary.path("bad.yaml"), "tusk: lm\n");
  CHECK_THROWS_AS(inspect(temporary.path("bad.yaml")), ConfigError);
  overwrite(temporary.path("bad.safetensors"), "nonsense");
  CHECK_THROWS_AS(inspect(temporary.path("bad.safetensors")), IoError);
  overwrite(temporary.path("bytes"), std::string("\x00\xff\x01", 3));
  CHECK_THROWS_AS(inspect(temporary.path("bytes")), IoError);
  CHECK_THROWS_AS(inspect(temporary.path("nothing")), IoError);
  CHECK_THROWS_AS(inspect(temporary.path()), IoError);
}
