#include "train/checkpoint_tokenizer.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/token_split.h"
#include "foreign_model.h"
#include "tiny_run.h"
#include "train/manifest.h"

using namespace fovea;
using namespace fovea::test;
using namespace fovea::train;
namespace fs = std::filesystem;

namespace {

// Text that trains; the vocabulary of words and characters is its own.
const std::string kText = [] {
  std::string out;
  for (int i = 0; i < 200; ++i)
    out += "the cat sat on the mat and the dog ran " + std::to_string(i % 7) + "\n";
  return out;
}();

std::vector<std::string> on_text(const TemporaryFolder& folder, const std::string& tokenizer) {
  overwrite(folder.path("text.txt"), kText);
  return {"data.kind=text", "data.path=" + folder.path("text.txt"), "data.tokenizer=" + tokenizer,
          "train.max_steps=2"};
}

}  // namespace

TEST_CASE("a checkpoint alone has the tokenizer that it was trained with") {
  for (const char* name : {"word", "char", "byte", "merges"}) {
    INFO(name);
    const TemporaryFolder folder, elsewhere;
    overwrite(elsewhere.path("merges.txt"), "#version: 0.2\nt h\nth e\n");
    const std::string given = name == std::string("merges") ? elsewhere.path("merges.txt") : name;
    const RunConfig config = tiny_config(folder.path("run"), on_text(folder, given));
    const auto tokenizer = data::open_data_tokenizer(config.data);
    run_tiny(folder.path("run"), on_text(folder, given));
    const std::string moved = elsewhere.path("moved");
    fs::rename(newest(folder.path("run")), moved);
    fs::remove(folder.path("text.txt"));
    fs::remove(elsewhere.path("merges.txt"));
    const auto own = tokenizer_of(moved);
    REQUIRE(own != nullptr);
    CHECK(own->fingerprint() == tokenizer->fingerprint());
    CHECK(own->encode("the cat") == tokenizer->encode("the cat"));
    // The manifest answers for the files.
    for (const data::TokenizerFile& file : tokenizer->files()) {
      CHECK(contents(moved + "/" + file.name) == file.bytes);
      overwrite(moved + "/" + file.name, file.bytes + "x\n");
      CHECK_THROWS_WITH_AS(verify_manifest(moved), doctest::Contains(file.name.c_str()),
                           CheckpointError);
    }
  }
}

TEST_CASE("a tokenizer that is another one than it was trained with is refused") {
  const TemporaryFolder folder;
  run_tiny(folder.path("run"), on_text(folder, "word"));
  const std::string checkpoint = newest(folder.path("run"));
  overwrite(checkpoint + "/vocab.txt", contents(checkpoint + "/vocab.txt") + "more\n");
  CHECK_THROWS_WITH_AS(tokenizer_of(checkpoint), doctest::Contains("another tokenizer"),
                       CheckpointError);
  fs::remove(checkpoint + "/vocab.txt");
  CHECK_THROWS_WITH_AS(tokenizer_of(checkpoint), doctest::Contains("vocab.txt"), CheckpointError);
}

TEST_CASE("generated data has no tokenizer") {
  const TemporaryFolder folder;
  run_tiny(folder.path("run"), {"train.max_steps=2"});
  CHECK(tokenizer_of(folder.path("run")) == nullptr);
  CHECK(tokenizer_name_of(folder.path("run")).empty());
}

TEST_CASE("a resumed run keeps the copy, though the tokenizer's files are gone") {
  const TemporaryFolder folder;
  std::vector<std::string> overrides = on_text(folder, "word");
  run_tiny(folder.path("run"), overrides);
  const std::string before = tokenizer_of(folder.path("run"))->fingerprint();
  overrides.back() = "train.max_steps=4";
  run_tiny(folder.path("run"), overrides);
  CHECK(newest(folder.path("run")).ends_with("4"));
  CHECK(tokenizer_of(folder.path("run"))->fingerprint() == before);
}

TEST_CASE("models of other programs have the tokenizer that lies beside them") {
  const TemporaryFolder model;
  tiny_gpt2().write(model, gpt2_json());
  CHECK(tokenizer_of(model.path()) == nullptr);
  overwrite(model.path("merges.txt"), "#version: 0.2\na b\n");
  CHECK(tokenizer_name_of(model.path()) == model.path());
  CHECK(tokenizer_of(model.path("model.safetensors"))->kind() == "bpe");
  overwrite(model.path("stories.bin"), "x");
  CHECK(tokenizer_name_of(model.path("stories.bin")).empty());
  overwrite(model.path("tok9.bin"), "x");
  CHECK(tokenizer_name_of(model.path("stories.bin")) == model.path("tok9.bin"));
}

TEST_CASE("texts are encoded by the tokenizer of train.init_from unless another is given") {
  const TemporaryFolder folder, model;
  run_tiny(folder.path("run"), on_text(folder, "word"));
  overwrite(folder.path("other.txt"), "the dog sat and the cat ran\n");
  const auto from = [&](const std::string& path, std::vector<std::string> more = {}) {
    config::Node node = config::parse("data: {seq_len: 4}\ntrain: {max_steps: 1}\n", "a.yaml");
    more.insert(more.begin(), {"train.init_from=" + path, "data.path=" + folder.path("other.txt")});
    config::override_with(node, more);
    return RunConfig::from(node);
  };
  const RunConfig config = from(folder.path("run"));
  CHECK(config.data.tokenizer == folder.path("run/ckpt/latest"));
  CHECK(data::open_data_tokenizer(config.data)->fingerprint() ==
        tokenizer_of(folder.path("run"))->fingerprint());
  CHECK(RunConfig::from(config.resolved).resolved.yaml() == config.resolved.yaml());

  tiny_gpt2().write(model, gpt2_json());
  CHECK_THROWS_WITH_AS(from(model.path()), doctest::Contains("give data.tokenizer="), ConfigError);
  CHECK(from(model.path(), {"data.kind=tokens"}).data.tokenizer == "byte");
  overwrite(model.path("merges.txt"), "#version: 0.2\na b\n");
  CHECK(from(model.path()).data.tokenizer == model.path());
  CHECK(from(model.path(), {"data.tokenizer=char"}).data.tokenizer == "char");
}
