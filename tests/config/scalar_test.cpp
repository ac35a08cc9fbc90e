#include "config/scalar.h"

#include <limits>

#include <doctest/doctest.h>

using namespace fovea::config;

TEST_SUITE("config scalar") {
  TEST_CASE("integers are decimal, with underscores and integral exponents") {
    CHECK(to_int("0") == 0);
    CHECK(to_int("-17") == -17);
    CHECK(to_int("+5") == 5);
    CHECK(to_int("1_000") == 1000);
    CHECK(to_int("1e6") == 1000000);
    CHECK(to_int("1.5e3") == 1500);
    CHECK(to_int("2.0") == 2);
    CHECK(to_int("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  }

  TEST_CASE("what readers of YAML disagree on, or what does not fit, is no integer") {
    for (const char* text : {"010",
                             "0x1F",
                             "0o17",
                             "12:30",
                             "1_",
                             "_1",
                             "1__0",
                             "1.5",
                             "1e-1",
                             "",
                             "-",
                             "+",
                             "e5",
                             ".",
                             "1e",
                             "4 ",
                             "9223372036854775808",
                             "1e300",
                             ".inf",
                             "nan",
                             "1,000",
                             "yes"}) {
      CAPTURE(text);
      CHECK_FALSE(to_int(text).has_value());
    }
  }

  TEST_CASE("numbers are finite decimals") {
    CHECK(to_number(".5") == 0.5);
    CHECK(to_number("5.") == 5);
    CHECK(to_number("-1.5e-3") == -0.0015);
    CHECK(to_number("1e3") == 1000);
    CHECK(to_number("1_000.5") == 1000.5);
    for (const char* text : {".nan", ".inf", "-.inf", "inf", "nan", "1e999", "0x1p3", "010.5",
                             "1.2.3", "1e+", "--1", "."}) {
      CAPTURE(text);
      CHECK_FALSE(to_number(text).has_value());
    }
  }

  TEST_CASE("only true and false are bools: no is not") {
    CHECK(to_bool("true") == true);
    CHECK(to_bool("False") == false);
    for (const char* text : {"no", "yes", "on", "off", "1", "tRUE", ""})
      CHECK_FALSE(to_bool(text).has_value());
  }

  TEST_CASE("durations are seconds, or hours, minutes and seconds in that order") {
    CHECK(to_seconds("300") == 300);
    CHECK(to_seconds("300s") == 300);
    CHECK(to_seconds("5m") == 300);
    CHECK(to_seconds("1h30m") == 5400);
    CHECK(to_seconds("1.5h") == 5400);
    CHECK(to_seconds("1h0m2s") == 3602);
    for (const char* text : {"-1", "5 m", "m", "30m1h", "1h30", "1d", "5mm", "", "-5m"}) {
      CAPTURE(text);
      CHECK_FALSE(to_seconds(text).has_value());
    }
  }

  TEST_CASE("numbers are written so that every reader takes them for the same number") {
    CHECK(number_text(0.0003) == "0.0003");
    CHECK(number_text(1e-8) == "0.00000001");
    CHECK(number_text(1e-20) == "1.0e-20");
    CHECK(number_text(10000) == "10000");
    CHECK(number_text(0.1) == "0.1");
    for (const double value : {1.0 / 3, 1e300, -2.5e-17, 123456789.125, 5e-324})
      CHECK(to_number(number_text(value)) == value);
  }

  TEST_CASE("text that could be read as something else needs quotes") {
    for (const char* text : {"", "null", "true", "no", "12", "-x", ".5", "a: b", "a #b", "a,b", "[",
                             "x:", " x", "a\nb", "@x"}) {
      CAPTURE(text);
      CHECK(needs_quotes(text));
    }
    for (const char* text : {"adamw", "runs/a-b_1.x", "/data/books", "a b", "x:y", "h\xC3\xA9"}) {
      CAPTURE(text);
      CHECK_FALSE(needs_quotes(text));
    }
    CHECK(quoted_text("a\"\\\n\x01") == "\"a\\\"\\\\\\n\\u0001\"");
  }
}
