#include "data/quote.h"

#include <doctest/doctest.h>

using namespace fovea::data;

TEST_CASE("a quoted text cannot steer a terminal") {
  CHECK(quote("a\x1b[31m\n\"") == "\"a\\x1b[31m\\x0a\\\"\"");
  CHECK(quote("\xc2\x9b"
              "31m") == "\"\\xc2\\x9b31m\"");  // a C1 control
  CHECK(quote("gr\xc3\xb6\xc3\x9f") == "\"gr\xc3\xb6\xc3\x9f\"");
  CHECK(quote(std::string(100, 'x'), 10) == "\"xxxxxxxxxx...\"");
}

TEST_CASE("only well-formed UTF-8 is UTF-8") {
  CHECK(is_utf8(""));
  CHECK(is_utf8(std::string_view("a\0b", 3)));
  CHECK(is_utf8("\xf4\x8f\xbf\xbf"));
  CHECK_FALSE(is_utf8("\xc0\xaf"));          // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  CHECK_FALSE(is_utf8("\xe2\x82"));          // cut short
}
