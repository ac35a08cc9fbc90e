// The keys below data, and what training makes of them.

#include <functional>

#include <doctest/doctest.h>

#include "config/message.h"
#include "core/error.h"
#include "core/file.h"
#include "data/prepare.h"
#include "run_config_case.h"
#include "temporary.h"
#include "tiny_run.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

std::string some_text(int lines, const std::string& word) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += word + " number " + std::to_string(i * i % 971) + "\n";
  return text;
}

// A corpus of short documents, a line of JSON each.
std::string records(int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += "{\"text\":\"document " + std::to_string(i) + std::string(i % 37, 'x') + "\"}\n";
  return out;
}

std::string what(const std::vector<std::string>& overrides) {
  return test::message([&] { least(overrides); });
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("data.mix is a list of corpora with weights, and is written out in full") {
  const RunConfig run = least({"data.kind=text", "data.mix=[{path: a, weight: 3}, {path: b}]"});
  REQUIRE(run.data.mix.size() == 2);
  CHECK(run.data.mix[0].path == "a");
  CHECK(run.data.mix[0].weight == 3);
  CHECK(run.data.mix[1].weight == 1);
  const RunConfig again =
      RunConfig::from(config::parse(run.resolved.yaml(), "config.yaml"), kinds());
  CHECK(again.resolved.yaml() == run.resolved.yaml());
  CHECK(again.result_hash() == run.result_hash());
  CHECK(again.result_hash() !=
        least({"data.kind=text", "data.mix=[{path: a, weight: 2}, {path: b}]"}).result_hash());
}

TEST_CASE("a data.mix that means nothing is refused with its entry") {
  CHECK(has(what({"data.kind=text", "data.mix=a.txt"}), "data.mix is 'a.txt', but must be a list"));
  CHECK(has(what({"data.kind=text", "data.mix=[a.txt]"}), "data.mix[0] is 'a.txt', but must be {"));
  CHECK(has(what({"data.kind=text", "data.mix=[{weight: 1}]"}), "data.mix[0].path is missing"));
  CHECK(has(what({"data.kind=text", "data.mix=[{path: a}, {path: b, weight: 0}]"}),
            "data.mix[1].weight is"));
  CHECK(has(what({"data.kind=text", "data.mix=[{path: a, wieght: 2}]"}), "wieght"));
  CHECK(has(what({"data.kind=text", "data.path=a", "data.mix=[{path: b}]"}),
            "data.mix and data.path are both given; keep one"));
  CHECK(has(what({"data.mix=[{path: b}]"}), "data.kind markov has no corpora"));
  CHECK(has(what({"data.kind=tokens"}), "data.path is missing: data.kind tokens needs"));
}

TEST_CASE("the keys of texts and token files arrive") {
  const RunConfig run =
      least({"data.kind=tokens", "data.path=x", "data.pack=documents", "data.token_type=uint32",
             "data.vocab_size=77", "data.val_fraction=1"});
  CHECK(run.data.pack == data::Pack::documents);
  CHECK(run.data.token_bytes == 4);
  CHECK(run.data.vocab_size == 77);
  CHECK(least({"data.kind=text", "data.path=x", "data.text_field=a.b"}).data.text_field == "a.b");
  CHECK(run.data.val_fraction == 1);
}

TEST_CASE("a vocabulary larger than the model's is refused before anything is trained") {
  const TemporaryFolder folder;
  write_file_synced(folder.path("a.txt"), some_text(100, "line"));
  const std::string message = error_of([&] {
    run_tiny(folder.path("run"), {"data.kind=text", "data.path=" + folder.path("a.txt"),
                                  "data.tokenizer=char", "model.vocab_size=5"});
  });
  CHECK(has(message, "model.vocab_size is 5, but the data has"));
}

TEST_CASE("texts, a mix and prepared data train, and the cut into micro-batches shows nothing") {
  const TemporaryFolder folder;
  write_file_synced(folder.path("a.jsonl"), records(400));
  write_file_synced(folder.path("b.txt"), some_text(300, "line"));
  data::PrepareOptions options;
  options.source = folder.path("a.jsonl");
  options.out = folder.path("prepared");
  options.tokenizer = "char";
  data::prepare(options);
  const std::vector<std::vector<std::string>> cases = {
      {"data.kind=text", "data.path=" + folder.path("a.jsonl"), "data.tokenizer=char",
       "data.pack=documents"},
      {"data.kind=tokens", "data.path=" + folder.path("prepared"), "data.pack=documents"},
      {"data.kind=text", "data.mix=[{path: " + folder.path("a.jsonl") +
                             ", weight: 2}, {path: " + folder.path("b.txt") + "}]"},
  };
  std::vector<std::uint64_t> hashes;
  for (const auto& keys : cases) {
    std::uint64_t expected = 0;
    for (const char* rows : {"2", "16", "4"}) {
      std::vector<std::string> overrides = keys;
      overrides.push_back(std::string("train.micro_batch_size=") + rows);
      Trainer trainer(tiny_config(folder.path("run"), overrides), kCpu);
      for (int step = 0; step < 4; ++step)
        trainer.step();
      if (expected == 0) expected = trainer.state().data_hash;
      CHECK(trainer.state().data_hash == expected);
    }
    hashes.push_back(expected);
  }
  CHECK(hashes[0] == hashes[1]);  // text and its shards are the same data
  CHECK(hashes[0] != hashes[2]);
}

TEST_CASE("a run whose text has changed does not go on from its checkpoint") {
  const TemporaryFolder folder;
  const std::string text = folder.path("a.txt");
  write_file_synced(text, some_text(400, "line"));
  const std::vector<std::string> keys = {"data.kind=text", "data.path=" + text};
  run_tiny(folder.path("run"), keys);
  const std::string fingerprint = Checkpoint(newest(folder.path("run"))).state().data_fingerprint;
  CHECK(fingerprint.size() == 16);
  std::vector<std::string> longer = keys;
  longer.push_back("train.max_steps=14");
  write_file_synced(text, some_text(400, "lime"));
  const std::string message = error_of([&] { run_tiny(folder.path("run"), longer); });
  CHECK(has(message, "was trained on other data (fingerprint " + fingerprint + ")"));
  CHECK_THROWS_AS(run_tiny(folder.path("run"), longer), CheckpointError);
  write_file_synced(text, some_text(400, "line"));
  CHECK(run_tiny(folder.path("run"), longer).step == 14);
}
