#include "train/inspect.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "foreign_model.h"
#include "skip.h"
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

TEST_CASE("a run whose newest checkpoint is torn is summed up by an older one, and says so") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=10"});
  REQUIRE(checkpoints_in(path).size() == 2);
  CHECK(inspect(path).fault.empty());
  overwrite(newest(path) + "/state.json", "{}");
  const Inspection run = inspect(path);
  CHECK(run.text.find("newest whole one " + checkpoints_in(path).front().path) !=
        std::string::npos);
  CHECK(run.fault.find(newest(path) + "/state.json: has 2 bytes") == 0);
  CHECK(run.fault.find('\n') == std::string::npos);
}

TEST_CASE("models and tokenizers of other programs are recognised") {
  const TemporaryFolder model, tokenizer;
  tiny_gpt2().write(model, gpt2_json());
  CHECK(inspect(model.path()).kind == "model");
  CHECK(inspect(model.path()).text.find("Hugging Face gpt2") != std::string::npos);
  CHECK(inspect(model.path("config.json")).kind == "model");
  CHECK(inspect(model.path("model.safetensors")).kind == "safetensors");
  overwrite(model.path("config.json"), R"({"model_type": "bert"})");
  CHECK_THROWS_WITH_AS(inspect(model.path()), doctest::Contains("bert"), CheckpointError);
  overwrite(tokenizer.path("merges.txt"), "#version: 0.2\na b\nab c\n");
  CHECK(inspect(tokenizer.path()).kind == "tokenizer");
  CHECK(inspect(tokenizer.path("merges.txt")).text.find("259 ids") != std::string::npos);
  overwrite(tokenizer.path("vocab.json"), R"({"a": 0, "b": 0})");
  CHECK_THROWS_WITH_AS(inspect(tokenizer.path("vocab.json")), doctest::Contains("share the id"),
                       IoError);
}

TEST_CASE("bin files are told apart by their beginnings and names") {
  const TemporaryFolder temporary;
  const auto write = [&](const std::string& name, const auto& values) {
    const auto* bytes = reinterpret_cast<const char*>(values.data());
    overwrite(temporary.path(name), {bytes, values.size() * sizeof values[0]});
    return temporary.path(name);
  };
  CHECK(inspect(write("ids.bin", std::vector<std::uint16_t>{5000, 6, 7, 50256, 9})).kind == "data");
  CHECK_THROWS_WITH_AS(inspect(write("x.bin", std::vector<std::uint16_t>{5000, 65535})),
                       doctest::Contains("goes up to 65535"), IoError);
  CHECK(inspect(write("my_train_01.bin", std::vector<std::uint16_t>{5000, 65535})).kind == "data");
  CHECK_THROWS_WITH_AS(inspect(write("m.bin", std::vector<std::int32_t>{64, 172, 5, 7, 7, 512, 9})),
                       doctest::Contains("not divisible by 7 heads"), CheckpointError);
  CHECK_THROWS_AS(inspect(write("shard.bin", std::vector<std::int32_t>{20240520, 1, 9})), IoError);
  CHECK_THROWS_AS(inspect(write("tok9.bin", std::vector<std::int32_t>{7, 0, 900, 1})), IoError);
}

TEST_CASE("JSON is a document or a record a line, and a fault names its place") {
  const TemporaryFolder temporary;
  const auto write = [&](const std::string& name, const std::string& text) {
    overwrite(temporary.path(name), text);
    return temporary.path(name);
  };
  CHECK(inspect(write("a.json", "[1, 2]\n")).text.find("a list of 2") != std::string::npos);
  CHECK(inspect(write("b.json", "{\"a\": 1}\n\n{\"a\": 2}\n")).text.find("2 records") !=
        std::string::npos);
  CHECK(inspect(write("c.jsonl", "")).text.find("0 records") != std::string::npos);
  CHECK_THROWS_WITH_AS(inspect(write("d.jsonl", "{}\n{\"a\"\n")), doctest::Contains("line 2"),
                       IoError);
  CHECK_THROWS_WITH_AS(inspect(write("e.json", std::string("12\0", 3))),
                       doctest::Contains("byte 3"), IoError);
  // A million open brackets take no more than their text.
  CHECK_THROWS_AS(inspect(write("f.json", std::string(1000000, '['))), IoError);
  // Names of a file do not steer the terminal.
  CHECK(inspect(write("g.json", "{\"\\u001b[2J\": 1}")).text.find('\x1b') == std::string::npos);
}

TEST_CASE("an error is one line, whatever it lists") {
  const TemporaryFolder temporary;
  overwrite(temporary.path("bad.yaml"), "task: lm\nmodel: {n_layers: 2}\ntrein: {}\n");
  try {
    inspect(temporary.path("bad.yaml"));
    FAIL("nothing was thrown");
  } catch (const ConfigError& e) {
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    CHECK(std::string(e.what()).find("more)") != std::string::npos);
  }
}

TEST_CASE("a folder of bin files is looked into as each of them is") {
  const TemporaryFolder temporary;
  const auto write = [&](const std::string& name, const auto& values) {
    const auto* bytes = reinterpret_cast<const char*>(values.data());
    overwrite(temporary.path(name), {bytes, values.size() * sizeof values[0]});
  };
  write("a.bin", std::vector<std::uint16_t>{5000, 6, 7, 50256, 9});
  CHECK(inspect(temporary.path()).kind == "data");
  write("b.bin", std::vector<std::uint16_t>{5000, 65535});
  CHECK_THROWS_WITH_AS(inspect(temporary.path()), doctest::Contains("b.bin: is no .bin file"),
                       IoError);
  write("b.bin", std::vector<std::int32_t>{64, 172, 5, 7, 7, 512, 9});
  CHECK_THROWS_WITH_AS(inspect(temporary.path()), doctest::Contains("not divisible by 7 heads"),
                       CheckpointError);
}

TEST_SUITE("with test data") {
  TEST_CASE("a llama2.c model's folder is that model, with its tokenizer") {
    const std::string folder = test_data("models/stories260K");
    if (folder.empty()) FOVEA_SKIP("the model is not there");
    const Inspection model = inspect(folder);
    CHECK(model.kind == "model");
    CHECK(model.text.find("stories260K.bin: model of llama2.c") != std::string::npos);
    CHECK(model.text.find("llama2c, 512 ids") != std::string::npos);
  }

  TEST_CASE("no folder of other programs' files passes for tokens") {
    for (const char* name : {"models/aren-transliteration-ct2", "hostile/containers/llama2c",
                             "hostile/containers/cifar"}) {
      const std::string folder = test_data(name);
      if (folder.empty()) FOVEA_SKIP("the files are not there");
      CHECK_THROWS_AS_MESSAGE(inspect(folder), Error, name);
    }
  }
}
