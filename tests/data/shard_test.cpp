#include "data/shard.h"

#include <filesystem>
#include <functional>

#include <doctest/doctest.h>

#include "core/error.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;
namespace fs = std::filesystem;

namespace {

std::vector<std::int32_t> counting(int count, std::int32_t vocab) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>((std::int64_t{i} * 7919 + i / 3) % vocab));
  return ids;
}

// Two documents and an empty one between them.
ShardManifest write(const std::string& folder, const std::vector<std::int32_t>& ids,
                    std::int32_t vocab) {
  ShardWriter writer(folder, vocab);
  writer.tokens(std::span(ids).first(5));
  writer.end_document();
  writer.end_document();
  writer.tokens(std::span(ids).subspan(5));
  writer.end_document();
  ShardManifest manifest;
  manifest.recipe.vocab = vocab;
  manifest.recipe.layout = "one \"file\"\n\xff";
  manifest.recipe.val_fraction = 0.1;
  manifest.recipe.sources = {{"a.txt", 12, 0xfedcba9876543210}};
  manifest.counts = {3, 1234, 1200, 300, 20, 4};
  manifest.removed = {1, 2};
  writer.finish(manifest);
  return manifest;
}

void change(const std::string& path, std::size_t at) {
  std::string bytes = read_file(path);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_file_synced(path, bytes);
}

}  // namespace

TEST_CASE("ids, documents and the manifest survive, in 2 and in 4 bytes") {
  for (const std::int32_t vocab : {65536, 65537}) {
    const TempFolder folder;
    const std::vector<std::int32_t> ids = counting(1'100'000, vocab);
    const ShardManifest written = write(folder.path(), ids, vocab);
    const ShardTokens shard(folder.path());
    CHECK(shard.size() == 1'100'000);
    CHECK(shard.manifest().token_bytes == (vocab == 65536 ? 2 : 4));
    CHECK(fs::file_size(folder / "tokens.bin") ==
          static_cast<std::size_t>(1'100'000 * shard.manifest().token_bytes));
    std::vector<std::int32_t> back(ids.size());
    shard.read(0, shard.size(), back.data());
    CHECK(back == ids);
    CHECK(std::vector<std::uint64_t>(shard.offsets().begin(), shard.offsets().end()) ==
          std::vector<std::uint64_t>{0, 5, 5, 1'100'000});
    CHECK(shard.manifest().counts == written.counts);
    CHECK(shard.manifest().removed.carriage_returns == 2);
    CHECK(shard.manifest().fingerprint == written.fingerprint);
    CHECK(shard.manifest().recipe.sources == written.recipe.sources);
    CHECK(shard.manifest().recipe.val_fraction == 0.1);
  }
}

TEST_CASE("tokens.bin is plain little-endian numbers") {
  const TempFolder folder;
  write(folder.path(), {1, 2, 3, 4, 5, 258}, 300);
  CHECK(read_file(folder / "tokens.bin") == std::string("\1\0\2\0\3\0\4\0\5\0\2\1", 12));
}

TEST_CASE("a damaged MiB is found when it is touched, not before, and named") {
  const TempFolder folder;
  const std::vector<std::int32_t> ids = counting(1'600'000, 50000);
  write(folder.path(), ids, 50000);
  change(folder / "tokens.bin", (1 << 20) + 17);
  const ShardTokens shard(folder.path());
  std::vector<std::int32_t> back(600'000);
  shard.read(0, 500'000, back.data());          // the first MiB
  shard.read(1'100'000, 500'000, back.data());  // the third and fourth
  const std::string message = message_of([&] { shard.read(524'287, 2, back.data()); });
  CHECK(contains(message, "tokens.bin: is damaged between bytes 1048576 and 2097152"));
  CHECK_THROWS_AS(shard.read(600'000, 1, back.data()), IoError);  // again
}

TEST_CASE("everything else that is altered, cut or missing is found when it is opened") {
  const std::vector<std::int32_t> ids = counting(2000, 50000);
  const auto refusal = [&](const std::function<void(const TempFolder&)>& damage) {
    const TempFolder folder;
    write(folder.path(), ids, 50000);
    damage(folder);
    const auto open = [&] { ShardTokens shard(folder.path()); };
    CHECK_THROWS_AS(open(), IoError);
    return message_of(open);
  };
  CHECK(contains(refusal([](const TempFolder& f) { fs::remove(f / "manifest.json"); }),
                 "manifest.json"));
  CHECK(contains(refusal([](const TempFolder& f) { fs::remove(f / "tokens.bin"); }), "tokens.bin"));
  CHECK(contains(refusal([](const TempFolder& f) { fs::resize_file(f / "tokens.bin", 3998); }),
                 "has 3998 bytes, but the manifest says 4000"));
  CHECK(contains(refusal([](const TempFolder& f) { fs::resize_file(f / "index.bin", 24); }),
                 "index.bin: has 24 bytes"));
  CHECK(contains(refusal([](const TempFolder& f) { fs::resize_file(f / "blocks.bin", 0); }),
                 "blocks.bin"));
  CHECK(contains(refusal([](const TempFolder& f) { change(f / "index.bin", 8); }),
                 "index.bin: is damaged"));
  CHECK(contains(refusal([](const TempFolder& f) { change(f / "blocks.bin", 1); }),
                 "blocks.bin: is damaged"));
  CHECK(contains(refusal([](const TempFolder& f) {
                   std::string text = read_file(f / "manifest.json");
                   text.replace(text.find("50000"), 5, "50001");
                   write_file_synced(f / "manifest.json", text);
                 }),
                 "is altered: its own hash does not fit"));
  CHECK(contains(refusal([](const TempFolder& f) { f.put("manifest.json", "{\"schema\":1}"); }),
                 "is of another kind"));
  CHECK(contains(refusal([](const TempFolder& f) { f.put("manifest.json", "[\x1b"); }),
                 "is no manifest"));
}

TEST_CASE("a writer that does not finish leaves no manifest and no tokens") {
  const TempFolder folder;
  {
    ShardWriter writer(folder.path(), 300);
    writer.tokens(std::vector<std::int32_t>{1, 2, 3});
  }
  CHECK(fs::is_empty(folder.path()));
}
