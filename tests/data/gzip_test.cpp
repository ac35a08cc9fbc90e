#include "data/gzip.h"

#include <cstring>

#include <doctest/doctest.h>

#include "core/error.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

// "hello\n", packed.
const std::string kHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00"
    "\x20\x30\x3a\x36\x06\x00\x00\x00",
    26);

std::string unpacked(const std::string& bytes) {
  const TempFolder folder;
  return read_gzip(folder.put("x.gz", bytes), 1 << 20);
}

std::string refusal(const std::string& bytes) {
  return message_of([&] { unpacked(bytes); });
}

}  // namespace

TEST_CASE("members are one text, and it may be read a byte at a time") {
  CHECK(unpacked(kHello) == "hello\n");
  CHECK(unpacked(kHello + kHello) == "hello\nhello\n");
  const TempFolder folder;
  GzipReader reader(folder.put("x.gz", kHello + kHello));
  std::string text;
  char c = 0;
  while (reader.read(&c, 1) == 1)
    text.push_back(c);
  CHECK(text == "hello\nhello\n");
  CHECK(reader.unpacked() == 12);
  CHECK(reader.read(&c, 1) == 0);
}

TEST_CASE("every cut of a gzip file is refused") {
  const std::string two = kHello + kHello;
  for (std::size_t bytes = 0; bytes < two.size(); ++bytes) {
    if (bytes == kHello.size()) continue;
    CAPTURE(bytes);
    CHECK_FALSE(refusal(two.substr(0, bytes)).empty());
  }
  CHECK(contains(refusal(two.substr(0, 40)), "is cut off: the member that begins at byte 26"));
}

TEST_CASE("a changed byte of data or checksums never passes for other text") {
  for (std::size_t at = 10; at < kHello.size(); ++at) {
    std::string changed = kHello;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    CAPTURE(at);
    // The unused bits behind the last block may be anything.
    CHECK((!refusal(changed).empty() || unpacked(changed) == "hello\n"));
  }
}

TEST_CASE("what is no gzip says so") {
  CHECK(contains(refusal(""), "is empty, not a gzip file"));
  CHECK(contains(refusal("plain text"), "is not a gzip file: it does not begin with 1f 8b"));
  CHECK(contains(refusal(kHello + "trailing"),
                 "has bytes behind the gzip member that ends at byte 26"));
}

TEST_CASE("a file that unpacks to more than the limit is refused") {
  const TempFolder folder;
  const std::string path = folder.put("x.gz", kHello);
  CHECK(read_gzip(path, 6) == "hello\n");
  CHECK(contains(message_of([&] { read_gzip(path, 5); }),
                 "unpacks to more than the limit of 5 bytes"));
  CHECK(is_gzip(path));
  CHECK_FALSE(is_gzip(folder.put("y", "\x1f")));
}

TEST_CASE("the hostile gzip files end as EXPECTED.tsv says (test data)") {
  if (test::test_data("hostile/containers/gzip").empty()) FOVEA_SKIP("no hostile/containers/gzip");
  const auto path = [](const std::string& name) {
    return test::test_data("hostile/containers/gzip/" + name + ".gz");
  };
  CHECK(read_gzip(path("empty_member"), 100).empty());
  CHECK_FALSE(read_gzip(path("two_members"), 1000).empty());
  for (const std::string name :
       {"bad_crc", "not_gzip", "trailing_garbage", "truncated", "zero_bytes"}) {
    CAPTURE(name);
    CHECK_THROWS_AS(read_gzip(path(name), 1000), IoError);
    CHECK(message_of([&] { read_gzip(path(name), 1000); }).starts_with(path(name) + ": "));
  }
  CHECK_THROWS_AS(read_gzip(path("bomb_64MiB"), 1 << 20), IoError);
  CHECK(read_gzip(path("bomb_64MiB"), 1 << 26).size() == 1 << 26);
}
