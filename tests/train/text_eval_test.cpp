// Language models scored in every convention.

#include "train/text_eval.h"

#include <cmath>
#include <numbers>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/prepare.h"
#include "data/safetensors.h"
#include "skip.h"
#include "tiny_run.h"
#include "train/evaluate.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "line " + std::to_string(i * i % 97) + " of the text\n";
  return text;
}

// A run of bytes, one step long. Returns its folder.
std::string trained(const TemporaryFolder& folder, std::vector<std::string> more = {}) {
  overwrite(folder.path("train.txt"), some_text(400));
  more.insert(more.begin(), {"data.kind=text", "data.path=" + folder.path("train.txt"),
                             "train.max_steps=1", "eval.interval=0"});
  run_tiny(folder.path("run"), more);
  return folder.path("run");
}

EvaluateResult evaluated(const std::string& run, std::vector<std::string> overrides,
                         const EvaluateOptions& options = {}) {
  return evaluate(run, overrides, options);
}

void put_books(const TemporaryFolder& folder) {
  for (const char* split : {"train", "test"})
    std::filesystem::create_directories(folder.path(std::string("books/") + split));
  overwrite(folder.path("books/train/1.txt"), some_text(50));
  overwrite(folder.path("books/test/a.txt"), some_text(9));
  overwrite(folder.path("books/test/b.txt"), "caf\xC3\xA9 " + some_text(5));
}

}  // namespace

TEST_CASE("a model that knows nothing scores T ln V and eight bits a byte") {
  const TemporaryFolder folder;
  // Nothing is learned, and weights this small leave the logits equal.
  const std::string run =
      trained(folder, {"model.init_std=1e-30", "optim.lr=0", "model.position=none"});
  for (const char* stride : {"0", "5", "1"}) {
    const EvaluateResult result = evaluated(
        run, {"data.path=" + folder.path("train.txt"), std::string("eval.stride=") + stride});
    REQUIRE(result.text.has_value());
    const TextEvaluation& e = *result.text;
    const auto bytes = static_cast<std::int64_t>(some_text(400).size());
    CHECK(e.targets == bytes - 1);
    CHECK(e.split == "all");
    // ln 256 is rounded to f32 once a token.
    CHECK(e.nats == static_cast<double>(e.targets) * static_cast<double>(std::log(256.0f)));
    CHECK(std::fabs(e.token_perplexity() / 256 - 1) < 1e-6);
    CHECK(std::fabs(*e.bits_per_byte() / 8 - 1) < 1e-6);
  }
}

TEST_CASE("the evaluation equals its recomputation from the saved losses") {
  const TemporaryFolder folder;
  const std::string run = trained(folder);
  put_books(folder);
  for (const char* precision : {"fp32", "fp64"}) {
    const EvaluateResult result =
        evaluated(run,
                  {"data.path=" + folder.path("books"), "data.split=test", "eval.stride=5",
                   std::string("train.precision=") + precision},
                  {.losses = folder.path("losses.safetensors"), .per_document = true});
    const auto json = nlohmann::json::parse(text_evaluation_json(*result.text));
    const data::SafetensorsFile file(folder.path("losses.safetensors"));
    CHECK(file.read("losses").dtype() ==
          (precision == std::string("fp64") ? DType::f64 : DType::f32));
    const std::vector<double> losses = file.read("losses").values(),
                              documents = file.read("document").values(),
                              positions = file.read("position").values(),
                              targets = file.read("targets").values();
    const std::string texts[] = {contents(folder.path("books/test/a.txt")),
                                 contents(folder.path("books/test/b.txt"))};
    double sum = 0, of_document[2] = {0, 0};
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const auto document = static_cast<std::size_t>(documents[i]);
      sum += losses[i];
      of_document[document] += losses[i];
      const auto byte =
          static_cast<unsigned char>(texts[document].at(static_cast<std::size_t>(positions[i])));
      REQUIRE(static_cast<int>(targets[i]) == byte);
    }
    CHECK(sum == json["L"].get<double>());
    CHECK(static_cast<std::int64_t>(losses.size()) == json["T"].get<std::int64_t>());
    const double bytes = static_cast<double>(texts[0].size() + texts[1].size()) - 2;
    const auto is = [](const nlohmann::json& has, double expected) {
      return std::fabs(has.get<double>() / expected - 1) < 1e-9;
    };
    CHECK(json["U"] == bytes);
    CHECK(json["C"] == bytes - 1);
    CHECK(json["W"] == 14 * 5 + 1);
    CHECK(is(json["token_perplexity"], std::exp(sum / static_cast<double>(losses.size()))));
    CHECK(is(json["word_perplexity"], std::exp(sum / (14 * 5 + 1))));
    CHECK(is(json["bits_per_byte"], sum / (bytes * std::numbers::ln2)));
    CHECK(is(json["bits_per_character"], sum / ((bytes - 1) * std::numbers::ln2)));
    for (const std::size_t d : {0u, 1u}) {
      CHECK(json["per_document"][d]["L"].get<double>() == of_document[d]);
      CHECK(json["per_document"][d]["U"] == texts[d].size() - 1);
      CHECK(json["per_document"][d]["T"] == texts[d].size() - 1);
    }
    CHECK(json["per_document"][1]["name"] == "test/b.txt");
    CHECK(json["protocol"]["stride"] == 5);
    CHECK(json["protocol"]["by_document"] == true);
    CHECK(json["protocol"]["unscored_tokens"] == 2);
    CHECK(json["data"]["split"] == "test");
  }
}

TEST_CASE("neither the number of windows at once nor that of threads changes a bit") {
  const TemporaryFolder folder;
  const std::string run = trained(folder, {"model.position=rope", "model.block_size=48"});
  put_books(folder);
  // 48: groups of 8 windows; 150: each alone, a group would be 64; 128: as asked.
  for (const char* context : {"48", "16", "150", "128"}) {
    for (const char* stride : {"0", "7"}) {
      std::vector<std::string> base = {"data.path=" + folder.path("books"), "data.split=test",
                                       std::string("eval.context=") + context,
                                       std::string("eval.stride=") + stride,
                                       "eval.random_batches=1"};
      if (context == std::string("150")) base.emplace_back("eval.documents=false");
      std::optional<EvaluateResult> first;
      for (const char* rows : {"1", "3", "8", "64"}) {
        std::vector<std::string> overrides = base;
        overrides.push_back(std::string("eval.micro_batch_size=") + rows);
        overrides.push_back(std::string("train.threads=") + (rows[0] == '3' ? "2" : "1"));
        EvaluateResult result = evaluated(run, overrides);
        if (!first) first = result;
        CHECK(result.metrics == first->metrics);
        CHECK(result.text->random->loss == first->text->random->loss);
      }
    }
  }
}

TEST_CASE("training's evaluation and that of the checkpoint are the same, with a stride too") {
  const TemporaryFolder folder;
  put_books(folder);
  std::filesystem::rename(folder.path("books/test"), folder.path("books/validation"));
  for (const char* stride : {"0", "4"}) {
    const std::string out = folder.path(std::string("run") + stride);
    const TrainResult run =
        run_tiny(out, {"data.kind=text", "data.path=" + folder.path("books"), "train.max_steps=2",
                       "eval.interval=0", std::string("eval.stride=") + stride});
    const EvaluateResult result = evaluate(out);
    CHECK(result.metrics == run.metrics);
    CHECK(result.text->nats == result.metrics[4].second);
    CHECK(result.text->by_document);
  }
}

TEST_CASE("a part of a split has bytes, but no words") {
  const TemporaryFolder folder;
  const EvaluateResult result =
      evaluated(trained(folder), {"data.path=" + folder.path("train.txt"), "eval.max_batches=1"});
  const TextEvaluation& e = *result.text;
  CHECK(e.windows == 8);
  CHECK(e.targets == 128);
  CHECK(e.bytes.count == 128);
  CHECK_FALSE(e.words.count.has_value());
  CHECK(e.words.what.find("eval.max_batches") != std::string::npos);
}

TEST_CASE("words are divided by as the convention says, or by the official count") {
  const TemporaryFolder folder;
  const std::string run = trained(folder), text = "data.path=" + folder.path("train.txt");
  const auto words = [&](const std::string& convention) {
    return *evaluated(run, {text, "eval.max_batches=0", convention}).text->words.count;
  };
  CHECK(words("eval.word_convention=auto") == 400 * 5);
  CHECK(words("eval.word_convention=wikitext") == 400 * 6);
  CHECK(words("eval.word_convention=wikitext-1") == 400 * 4);
  CHECK(words("eval.words=1234") == 1234);
}

TEST_CASE("WikiText's words are counted with line ends, however its files lie") {
  const TemporaryFolder folder;
  const std::string run = trained(folder), text = " \n = Valkyria = \n \n Senjō no Valkyria . \n";
  std::filesystem::create_directories(folder.path("wikitext-2"));
  const auto words = [&](const std::string& path) {
    return *evaluated(run, {"data.path=" + folder.path(path)}).text->words.count;
  };
  overwrite(folder.path("wiki.test.raw"), "one two\nthree\n");
  CHECK(words("wiki.test.raw") == 3 + 2);
  overwrite(folder.path("other.raw"), "one two\nthree\n");
  CHECK(words("other.raw") == 3);
  for (const char* name : {"wikitext-2/test.txt", "wikitext-2/valid.txt"})
    overwrite(folder.path(name), text);
  CHECK(words("wikitext-2/test.txt") == 7 + 4);
  CHECK(words("wikitext-2") == 7 + 4);
  data::PrepareOptions options;
  options.source = folder.path("wikitext-2/test.txt");
  options.out = folder.path("shards");
  options.tokenizer = "byte";
  options.val_fraction = 1;
  data::prepare(options);
  CHECK(words("shards") == 7 + 4);
  options.out = folder.path("splits");
  options.source = folder.path("wikitext-2");
  data::prepare(options);
  CHECK(words("splits") == 7 + 4);
}

TEST_CASE("documents have a file's name where every file is one") {
  const TemporaryFolder folder;
  const std::string run = trained(folder);
  std::filesystem::create_directories(folder.path("texts"));
  const auto names = [&] {
    std::vector<std::string> out;
    const EvaluateResult result =
        evaluated(run, {"data.path=" + folder.path("texts")}, {.losses = "", .per_document = true});
    for (const DocumentScore& d : result.text->per_document)
      out.push_back(d.name);
    return out;
  };
  overwrite(folder.path("texts/a.jsonl"), "{\"text\": \"some text\"}\n{\"text\": \"more\"}\n");
  overwrite(folder.path("texts/b.jsonl"), "");
  CHECK(names() == std::vector<std::string>{"", ""});
  std::filesystem::remove(folder.path("texts/a.jsonl"));
  std::filesystem::remove(folder.path("texts/b.jsonl"));
  overwrite(folder.path("texts/10.txt"), "some text");
  overwrite(folder.path("texts/9.txt"), "more");
  CHECK(names() == std::vector<std::string>{"9.txt", "10.txt"});
}

TEST_CASE("the model's own tokenizer reads other data, and another one's is refused") {
  const TemporaryFolder folder;
  overwrite(folder.path("train.txt"), some_text(400));
  run_tiny(folder.path("run"), {"data.kind=text", "data.path=" + folder.path("train.txt"),
                                "data.tokenizer=word", "train.max_steps=1", "eval.interval=0"});
  overwrite(folder.path("other.txt"), "of the unseen words\n");
  std::filesystem::remove(folder.path("train.txt"));
  const EvaluateResult result =
      evaluated(folder.path("run"), {"data.path=" + folder.path("other.txt")});
  CHECK(result.text->targets == 5);
  CHECK(result.text->word_convention == "wikitext");
  CHECK(result.text->words.count == 5);

  overwrite(folder.path("vocab.txt"), some_text(3));
  const auto refused = [&](std::vector<std::string> overrides) {
    CHECK_THROWS_WITH_AS(evaluated(folder.path("run"), overrides),
                         doctest::Contains("was trained with"), IoError);
  };
  const std::string other = "data.path=" + folder.path("other.txt");
  refused({other, "data.tokenizer=word:" + folder.path("vocab.txt")});
  data::PrepareOptions options;
  options.source = folder.path("other.txt");
  options.out = folder.path("shards");
  options.tokenizer = "word:" + folder.path("vocab.txt");
  options.val_fraction = 0.5;
  data::prepare(options);
  refused({"data.path=" + folder.path("shards"), "data.split=train"});
}

TEST_CASE("what cannot be scored is refused by name") {
  const TemporaryFolder folder;
  const std::string run = trained(folder), text = "data.path=" + folder.path("train.txt");
  const auto message = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), text);
    try {
      evaluated(run, overrides);
    } catch (const Error& e) {
      return std::to_string(static_cast<int>(e.code())) + " " + e.what();
    }
    return std::string("nothing");
  };
  CHECK(message({"eval.context=17"}).find("2 command line: eval.context=17: eval.context is 17") ==
        0);
  CHECK(message({"eval.stride=17"}).find("2 command line: eval.stride=17: eval.stride is 17") == 0);
  CHECK(message({"eval.prefix=true"}).find("2 eval.prefix is true, but tokenizer byte") == 0);
  overwrite(folder.path("train.txt"), "");
  CHECK(message({})[0] == '3');
  overwrite(folder.path("train.txt"), "x");
  CHECK(message({}).find("nothing to score") != std::string::npos);
  CHECK_THROWS_AS(evaluated(run, {"data.kind=markov"}, {.losses = "", .per_document = true}),
                  ConfigError);
}

TEST_SUITE("with test data") {
  TEST_CASE("a GPT-2 of another program is scored on a text with the tokenizer beside it") {
    const std::string model = test_data("models/tiny_gpt2");
    if (model.empty()) FOVEA_SKIP("the model is not there");
    const TemporaryFolder folder;
    overwrite(folder.path("a.txt"), "lower newer wider lowest low lower\n");
    const EvaluateResult result = evaluated(model, {"data.path=" + folder.path("a.txt")});
    const TextEvaluation& e = *result.text;
    CHECK(e.split == "all");
    CHECK(e.prefix == 20);
    CHECK(e.unscored == 0);
    CHECK(e.bytes.count == 35);
    CHECK(e.words.count == 6);
    CHECK(e.context == 1024);
    CHECK(e.tokenizer == "bpe");
    CHECK(std::fabs(*e.bits_per_byte() - e.nats / 35 / std::numbers::ln2) < 1e-12);
  }
}
