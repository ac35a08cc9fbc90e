#include "data/raw_tokens.h"

#include <cstring>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/source.h"
#include "data/token_split.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t tokens,
                 const std::string& ids) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes_of(header) + ids;
}

std::vector<std::int32_t> all(const TokenArray& tokens) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.size()));
  tokens.read(0, tokens.size(), out.data());
  return out;
}

const std::string kIds = bytes_of<std::uint16_t>({1, 2, 50256, 3, 65535});

}  // namespace

TEST_CASE("headerless files are ids from the first byte on") {
  const TempFolder folder;
  const RawTokens two(folder.put("train.bin", kIds), 2);
  CHECK(all(two) == std::vector<std::int32_t>{1, 2, 50256, 3, 65535});
  CHECK(two.usual_vocab() == 50257);
  const RawTokens four(folder.put("four.bin", bytes_of<std::uint32_t>({7, 100000})), 4);
  CHECK(all(four) == std::vector<std::int32_t>{7, 100000});
  CHECK(four.usual_vocab() == 0);
  CHECK(contains(message_of([&] { RawTokens(folder.put("odd.bin", "abc"), 2); }),
                 "has 3 bytes, which is no number of ids of 2 bytes"));
  CHECK(contains(message_of([&] { RawTokens(folder.put("none.bin", ""), 2); }), "is empty"));
}

TEST_CASE("llm.c's header is known, and checked against the file") {
  const TempFolder folder;
  const RawTokens gpt2(folder.put("a.bin", llmc(20240520, 1, 5, kIds)), 4);
  CHECK(all(gpt2) == std::vector<std::int32_t>{1, 2, 50256, 3, 65535});
  CHECK(std::string(gpt2.format()) == "llm.c");
  const RawTokens llama(
      folder.put("b.bin", llmc(20240801, 7, 2, bytes_of<std::uint32_t>({128000, 1}))), 2);
  CHECK(all(llama) == std::vector<std::int32_t>{128000, 1});
  CHECK(llama.usual_vocab() == 128256);
  CHECK(contains(message_of([&] { RawTokens(folder.put("c.bin", llmc(20240520, 2, 5, kIds)), 2); }),
                 "is an llm.c file of version 2, but version 1 is needed"));
  for (const std::int32_t lie : {4, 6, -1}) {
    CHECK(contains(
        message_of([&] { RawTokens(folder.put("d.bin", llmc(20240520, 1, lie, kIds)), 2); }),
        "but its header says"));
  }
}

TEST_CASE("the sampled hash sees the size and, in small files, every byte") {
  const TempFolder folder;
  const auto hash = [&](const std::string& bytes) {
    return RawTokens(folder.put("x", bytes), 2).sampled_hash();
  };
  CHECK(hash(kIds) == hash(kIds));
  CHECK(hash(kIds) != hash(kIds + kIds));
  std::string large(10 << 20, 'x');
  const std::uint64_t before = hash(large);
  large.back() = 'y';
  CHECK(hash(large) != before);
}

TEST_CASE("a folder's token files are split by their names") {
  const TempFolder folder;
  folder.put("fineweb_train_000001.bin", llmc(20240520, 1, 2, bytes_of<std::uint16_t>({1, 2})));
  folder.put("fineweb_train_000002.bin", llmc(20240520, 1, 2, bytes_of<std::uint16_t>({3, 4})));
  folder.put("fineweb_val_000000.bin", llmc(20240520, 1, 2, bytes_of<std::uint16_t>({5, 6})));
  DataConfig config;
  config.kind = "tokens";
  const TokenSplit train = open_split(config, folder.path(), Split::train);
  CHECK(all(*train.tokens) == std::vector<std::int32_t>{1, 2, 3, 4});
  CHECK(train.vocab == 50257);
  CHECK_FALSE(train.has_counts);
  CHECK(contains(train.summary, "2 llm.c files, 4 tokens"));
  CHECK(all(*open_split(config, folder.path(), Split::validation).tokens) ==
        std::vector<std::int32_t>{5, 6});
  CHECK(contains(message_of([&] { open_split(config, folder.path(), Split::test); }),
                 "has no test split"));
}

TEST_CASE("of a single file the tail is held out, and a pattern joins files") {
  const TempFolder folder;
  folder.put("1.bin", bytes_of<std::uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  folder.put("2.bin", bytes_of<std::uint16_t>({10, 11, 12, 13, 14}));
  DataConfig config;
  config.kind = "tokens";
  config.val_fraction = 0.2;
  CHECK(all(*open_split(config, folder / "1.bin", Split::train).tokens) ==
        std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(all(*open_split(config, folder / "*.bin", Split::validation).tokens) ==
        std::vector<std::int32_t>{8, 9, 14});
  CHECK(contains(message_of([&] { open_split(config, folder / "1.bin", Split::test); }),
                 "has no test split"));
}

TEST_CASE("ids beyond the vocabulary are refused when they are read, with their place") {
  const TempFolder folder;
  DataConfig config;
  config.kind = "tokens";
  config.path = folder.put("x.bin", kIds);
  config.val_fraction = 0;
  const auto source = make_source(config, 4, Split::train, 1);
  Example example;
  CHECK(contains(message_of([&] { source->get(0, 0, example); }),
                 "token 4 is 65535, but must be below 50257"));
  config.vocab_size = 65536;
  make_source(config, 4, Split::train, 1)->get(0, 0, example);
  CHECK(example.targets == std::vector<std::int32_t>{2, 50256, 3, 65535});
  config.token_bytes = 4;
  config.vocab_size = 0;
  config.path = folder.put("y.bin", bytes_of<std::uint32_t>({7, 100000, 1, 2, 3}));
  CHECK_THROWS_AS(make_source(config, 4, Split::train, 1), ConfigError);
  config.pack = Pack::documents;
  config.vocab_size = 100001;
  CHECK(contains(message_of([&] { make_source(config, 4, Split::train, 1); }),
                 "does not tell where documents begin"));
}
