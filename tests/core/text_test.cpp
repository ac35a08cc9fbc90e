#include "core/text.h"

#include <cmath>

#include <doctest/doctest.h>

using namespace fovea;

TEST_CASE("cat joins strings, characters, bools and numbers") {
  CHECK(cat("k is ", 3, ", ", 2.5, ' ', true, " ", -7L, " ", 18446744073709551615ull,
            std::string("!")) == "k is 3, 2.5 true -7 18446744073709551615!");
  CHECK(cat() == "");
}

TEST_CASE("cat writes the shortest number that reads back") {
  CHECK(cat(0.1) == "0.1");
  CHECK(std::stod(cat(1.0 / 3)) == 1.0 / 3);
  CHECK(cat(1e-300) == "1e-300");
  CHECK(cat(HUGE_VAL) == "inf");
}

TEST_CASE("bytes and counts are printed with three digits and a unit") {
  CHECK(human_bytes(512) == "512 B");
  CHECK(human_bytes(1024) == "1.00 KiB");
  CHECK(human_bytes(41.2 * 1024 * 1024 * 1024) == "41.2 GiB");
  CHECK(human_bytes(1023.9) == "1.00 KiB");
  CHECK(human_count(612000) == "612k");
  CHECK(human_count(1.25e6) == "1.25M");
  CHECK(human_count(7) == "7");
}

TEST_CASE("join puts the separator between the parts only") {
  CHECK(join(std::vector<std::string>{"a", "b", "c"}, ", ") == "a, b, c");
  CHECK(join(std::vector<std::string>{}, ", ").empty());
}

TEST_CASE("nearest finds a misspelt word and nothing for a foreign one") {
  const std::vector<std::string> keys{"batch_size", "seq_len", "learning_rate"};
  CHECK(nearest("batchsize", keys) == "batch_size");
  CHECK(nearest("seq_length", keys) == "seq_len");
  CHECK(nearest("sqe_len", keys) == "seq_len");
  CHECK(nearest("temperature", keys).empty());
  CHECK(nearest("x", std::vector<std::string>{}).empty());
}
