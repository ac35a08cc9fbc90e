#include "data/prepare.h"

#include <csignal>
#include <filesystem>
#include <map>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "data/shard.h"
#include "data/source.h"
#include "data/token_files.h"
#include "data/token_split.h"
#include "skip.h"
#include "temp_folder.h"
#include "write_gzip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::gzip;
using fovea::test::message_of;
using fovea::test::TempFolder;
namespace fs = std::filesystem;
using Stage = PrepareProgress::Stage;

namespace {

PrepareOptions options(const std::string& source, const std::string& out) {
  PrepareOptions o;
  o.source = source;
  o.out = out;
  return o;
}

// Every file below a folder with its bytes.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      out[fs::relative(entry.path(), folder).string()] = read_file(entry.path().string());
  }
  return out;
}

std::map<std::string, std::string> without_manifests(const std::string& folder) {
  auto out = contents(folder);
  std::erase_if(out, [](const auto& file) { return file.first.ends_with("manifest.json"); });
  return out;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  return out + "\"";
}

std::vector<std::string> some_documents() {
  std::vector<std::string> documents;
  for (int i = 0; i < 7; ++i) {
    std::string text = i % 2 == 0 ? "\xEF\xBB\xBF" : "";
    for (int line = 0; line < i * 40; ++line)
      text += "Line " + std::to_string(line * i) + " \"caf\xc3\xa9\" \xe6\x97\xa5\xe6\x9c\xac" +
              (line % 3 == 0 ? "\r\n" : "\n");
    documents.push_back(text);
  }
  return documents;
}

// A corpus with all three splits.
void put_splits(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += "the words and more of these " + std::to_string(i) + "\n";
  folder.put("train/a.txt", text);
  folder.put("train/b.txt", text.substr(100));
  folder.put("validation/c.txt", text.substr(30000));
  folder.put("test/d.txt", "the end\n");
}

}  // namespace

TEST_CASE("the same documents give the same shard bytes as files, packed, as records or mixed") {
  const TempFolder files, packed, records, mixed, one, out;
  const std::vector<std::string> documents = some_documents();
  std::string lines;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string name = std::to_string(i);
    files.put("deep/" + name + ".txt", documents[i]);
    packed.put(name + ".txt.gz", gzip(documents[i]));
    lines += "{\"id\":" + name + ",\"text\":" + json_string(documents[i]) + "}\n";
    if (i % 2 == 0) {
      mixed.put(name + ".txt", documents[i]);
    } else {
      mixed.put(name + ".json.gz", gzip("{\"text\":" + json_string(documents[i]) + "}"));
    }
  }
  records.put("all.jsonl", lines);
  const std::string bpe = test::test_data("gpt2-bpe/vocab.bpe");
  for (const std::string tokenizer : {"byte", "word", "char", bpe.c_str()}) {
    if (tokenizer.empty()) continue;
    for (const double fraction : {0.0, 0.2}) {
      CAPTURE(tokenizer);
      CAPTURE(fraction);
      std::map<std::string, std::string> expected;
      int number = 0;
      for (const std::string& source : {files.path(), packed.path(), records.path(),
                                        records / "all.jsonl", mixed.path(), mixed / "*"}) {
        CAPTURE(source);
        PrepareOptions o = options(source, out / std::to_string(number++));
        o.tokenizer = tokenizer;
        o.val_fraction = fraction;
        o.jobs = 1 + number % 3;
        const Prepared made = prepare(o);
        CHECK(made.splits.size() == (fraction > 0 ? 2 : 1));
        CHECK(made.splits[0].manifest.counts.documents == 7);
        CHECK(made.splits[0].manifest.removed.byte_order_marks == 4);
        const auto got = without_manifests(made.folder);
        CHECK(got.count("train/tokens.bin") == 1);
        CHECK(got.count("tokenizer/vocab.txt") == (tokenizer == "word" || tokenizer == "char"));
        if (expected.empty()) expected = got;
        CHECK(got == expected);
      }
      fs::remove_all(out.path());
    }
  }
}

TEST_CASE("training on prepared data sees what training on the text sees") {
  const TempFolder folder, out;
  put_splits(folder);
  for (const char* tokenizer : {"byte", "word", "char"}) {
    CAPTURE(tokenizer);
    PrepareOptions o = options(folder.path(), out / tokenizer);
    o.tokenizer = tokenizer;
    prepare(o);
    DataConfig text, tokens;
    text.path = folder.path();
    text.tokenizer = tokenizer;
    tokens.kind = "tokens";
    tokens.path = out / tokenizer;
    CHECK(vocab_size(text) == vocab_size(tokens));
    CHECK(open_data_tokenizer(text)->fingerprint() == open_data_tokenizer(tokens)->fingerprint());
    for (const Split split : {Split::train, Split::validation}) {
      for (const Pack pack : {Pack::plain, Pack::documents}) {
        text.pack = tokens.pack = pack;
        const auto a = make_source(text, 32, split, 5), b = make_source(tokens, 32, split, 5);
        CHECK(a->fingerprint() == b->fingerprint());
        CHECK(a->counts() == b->counts());
        REQUIRE(a->size() == b->size());
        Example x, y;
        for (std::int64_t i = 0; i < a->size(); i += 7) {
          a->get(i, 3, x);
          b->get(i, 3, y);
          CHECK(x.tokens == y.tokens);
          CHECK(x.targets == y.targets);
          CHECK(x.segments == y.segments);
        }
      }
    }
    // A split's own folder will do; another split's will not.
    tokens.path = (out / tokenizer) + "/train/";
    CHECK(make_source(tokens, 32, Split::train, 5)->size() > 0);
    CHECK(open_data_tokenizer(tokens) != nullptr);
    CHECK(contains(message_of([&] { make_source(tokens, 32, Split::test, 5); }),
                   "has no test split"));
    tokens.path = out / tokenizer;
    tokens.tokenizer = "word:" + (folder / "test/d.txt");
    CHECK(contains(message_of([&] { make_source(tokens, 32, Split::train, 5); }),
                   "was prepared with another one"));
  }
}

TEST_CASE(
    "killed at any moment, nothing is there that could be taken for whole, and a rerun ends it") {
  const TempFolder folder, out;
  put_splits(folder);
  const std::string expected_path = out / "expected", path = out / "killed";
  PrepareOptions o = options(folder.path(), expected_path);
  o.tokenizer = "word";
  int calls = 0;
  prepare(o, [&](const PrepareProgress&) { ++calls; });
  const auto expected = contents(expected_path);
  o.out = path;
  bool kept_something = false;
  for (int kill_at = 1; kill_at <= calls; ++kill_at) {
    CAPTURE(kill_at);
    fs::remove_all(path);
    fs::remove_all(path + ".preparing");
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int call = 0;
      prepare(o, [&](const PrepareProgress&) {
        if (++call == kill_at) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    if (kill_at < calls) {
      CHECK_FALSE(fs::exists(path));
    } else {
      CHECK(contents(path) == expected);  // killed behind the end
    }
    const Prepared made = prepare(o);
    CHECK(contents(path) == expected);
    CHECK_FALSE(fs::exists(path + ".preparing"));
    CHECK_FALSE(fs::exists(path + ".preparing.lock"));
    CHECK(made.nothing_to_do == (kill_at == calls));
    if (!made.nothing_to_do)
      for (const PreparedSplit& split : made.splits)
        kept_something = kept_something || split.kept;
  }
  CHECK(kept_something);
}

TEST_CASE("what an interrupted start left is used only if texts and options are the same") {
  const TempFolder folder, out;
  put_splits(folder);
  const std::string path = out / "x";
  PrepareOptions o = options(folder.path(), path);
  const auto stop_after_train = [&] {
    CHECK_THROWS(prepare(o, [&](const PrepareProgress& p) {
      if (p.stage == Stage::split_done) throw std::runtime_error("stopped");
    }));
    REQUIRE(fs::exists(path + ".preparing/train/manifest.json"));
  };
  stop_after_train();
  CHECK(prepare(o).splits[0].kept);
  fs::remove_all(path);
  stop_after_train();
  folder.put("train/b.txt", "another text\n");
  CHECK_FALSE(prepare(o).splits[0].kept);
  fs::remove_all(path);
  stop_after_train();
  o.tokenizer = "char";
  const Prepared made = prepare(o);
  CHECK_FALSE(made.splits[0].kept);
  CHECK(made.splits[0].manifest.recipe.tokenizer == "char");
}

TEST_CASE("what is there is not touched unless it is prepared data and may be replaced") {
  const TempFolder folder, out;
  put_splits(folder);
  PrepareOptions o = options(folder.path(), out / "x");
  CHECK_FALSE(prepare(o).nothing_to_do);
  CHECK(prepare(o).nothing_to_do);
  o.tokenizer = "word";
  CHECK(contains(message_of([&] { prepare(o); }), "holds other prepared data"));
  const auto before = contents(out / "x");
  CHECK_THROWS_AS(prepare(o), IoError);
  CHECK(contents(out / "x") == before);
  o.overwrite = true;
  CHECK(prepare(o).splits.size() == 3);
  CHECK(prepare(o).nothing_to_do);
  // Damage is found and may be repaired.
  fs::resize_file(out / "x/test/tokens.bin", 2);
  CHECK_FALSE(prepare(o).nothing_to_do);
  CHECK(prepare(o).nothing_to_do);
  o.out = folder.path() + "/train";
  CHECK_THROWS_AS(prepare(o), ConfigError);
  out.put("mine/thesis.txt", "years of work");
  o.out = out / "mine";
  CHECK(contains(message_of([&] { prepare(o); }), "is there already, and is no prepared data"));
  CHECK(fs::exists(out / "mine/thesis.txt"));
  fs::create_directory(out / "empty");
  o.out = out / "empty";
  CHECK(prepare(o).splits.size() == 3);
}

TEST_CASE("a target that cannot be is refused before a text is read") {
  const TempFolder folder, out;
  put_splits(folder);
  out.put("mine/thesis.txt", "years of work");
  for (const char* target : {"mine", "mine/thesis.txt", "mine/thesis.txt/x/y"}) {
    int calls = 0;
    const PrepareOptions o = options(folder.path(), out / target);
    CHECK_THROWS_AS(prepare(o, [&](const PrepareProgress&) { ++calls; }), IoError);
    CHECK_MESSAGE(calls == 0, target);
  }
  CHECK(contents(out.path()).size() == 1);
}

TEST_CASE("texts that are unfit leave nothing behind") {
  const TempFolder folder, out;
  folder.put("train/a.jsonl", "{\"text\":\"fine\"}\n{\"text\":1}\n");
  PrepareOptions o = options(folder.path(), out / "x");
  CHECK(contains(message_of([&] { prepare(o); }), "a.jsonl: line 2"));
  folder.put("train/a.jsonl", "{\"text\":\"\"}\n");
  CHECK(contains(message_of([&] { prepare(o); }), "the train split has no bytes"));
  o.text_field = "body";
  CHECK(contains(message_of([&] { prepare(o); }), "has no field \"body\""));
  CHECK(fs::is_empty(out.path()));
  o.source = folder / "none";
  CHECK_THROWS_AS(prepare(o), IoError);
  o.vocab_from = "x";
  CHECK_THROWS_AS(prepare(o), ConfigError);
}

TEST_CASE("short documents may leave nothing for validation") {
  const TempFolder folder, out;
  folder.put("x.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cd\"}\n");
  const PrepareOptions o = options(folder / "x.jsonl", out / "x");
  CHECK(prepare(o).splits.size() == 1);
  CHECK(prepare(o).nothing_to_do);
}

TEST_CASE("the vocabulary of words is the training split's, or another text's") {
  const TempFolder folder, out;
  folder.put("wiki.train.tokens", " a b b <unk> \n \n");
  folder.put("wiki.valid.tokens", " b c \n");
  PrepareOptions o = options(folder.path(), out / "x");
  o.tokenizer = "word";
  const Prepared made = prepare(o);
  REQUIRE(made.splits.size() == 2);
  CHECK(made.splits[0].manifest.recipe.vocab == 4);
  CHECK(made.splits[1].manifest.counts.words == 2);
  std::int32_t ids[3];
  ShardTokens(made.splits[1].folder).read(0, 3, ids);
  CHECK(open_shard_tokenizer(made.folder)->decode(ids) == " b <unk> \n");
  o.out = out / "y";
  o.vocab_from = folder / "wiki.valid.tokens";
  CHECK(prepare(o).splits[0].manifest.recipe.vocab == 4);  // <eos> b c <unk>
  fs::remove(folder / "wiki.train.tokens");
  o.vocab_from.clear();
  o.out = out / "z";
  CHECK(contains(message_of([&] { prepare(o); }), "the vocabulary of tokenizer word"));
}

TEST_CASE("memory does not grow with the text") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  FOVEA_SKIP("a sanitizer's own memory grows");
#endif
  const TempFolder folder, out;
  std::string text;
  while (text.size() < (1 << 20))
    text += "a line of many that are all alike\n";
  const auto peak = [&](int mebibytes) {
    {
      OutputFile file(folder / "x.txt");
      for (int i = 0; i < mebibytes; ++i)
        file.write(text);
      file.finish();
    }
    const pid_t child = ::fork();
    if (child == 0) {
      prepare(options(folder / "x.txt", out / std::to_string(mebibytes)));
      ::_exit(0);
    }
    int status = 0;
    rusage usage = {};
    ::wait4(child, &status, 0, &usage);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    return usage.ru_maxrss;  // KiB
  };
  const long small = peak(4), large = peak(100);
  CHECK(large - small < 16 * 1024);
}
