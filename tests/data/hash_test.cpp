#include "data/hash.h"

#include <doctest/doctest.h>

#include "temp_folder.h"

using namespace fovea::data;

TEST_CASE("xxh3 gives the published values") {
  // XXH3 64 bits, seed 0, of no bytes: the xxHash sanity checks.
  CHECK(hash_hex(xxh3_64("")) == "2d06800538d394c2");
}

TEST_CASE("xxh3 in pieces and of a file equals xxh3 of the whole") {
  std::string bytes;
  for (int i = 0; i < (1 << 20) + 4321; ++i)
    bytes.push_back(static_cast<char>(i * 7 + i / 251));
  const fovea::test::TempFolder folder;
  CHECK(xxh3_64_file(folder.put("x", bytes)) == xxh3_64(bytes));
  Xxh3 hash;
  for (std::size_t at = 0; at < bytes.size(); at += 1000)
    hash.update(bytes.data() + at, std::min<std::size_t>(1000, bytes.size() - at));
  CHECK(hash.hex() == hash_hex(xxh3_64(bytes)));
  bytes[5] ^= 1;
  CHECK(hash.value() != xxh3_64(bytes));
}
