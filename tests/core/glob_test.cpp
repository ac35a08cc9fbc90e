#include "core/glob.h"

#include <doctest/doctest.h>

using fovea::glob_match;

TEST_CASE("a glob without stars matches itself only") {
  CHECK(glob_match("wte.weight", "wte.weight"));
  CHECK_FALSE(glob_match("wte.weight", "wte.weights"));
  CHECK_FALSE(glob_match("wte.weight", "wte.weigh"));
  CHECK(glob_match("", ""));
  CHECK_FALSE(glob_match("", "a"));
}

TEST_CASE("a star stands for any characters, dots and none included") {
  CHECK(glob_match("*", ""));
  CHECK(glob_match("blocks.*.weight", "blocks.11.mlp.fc.weight"));
  CHECK(glob_match("*norm*.weight", "norm_f.weight"));
  CHECK_FALSE(glob_match("blocks.*.bias", "blocks.0.mlp.fc.weight"));
}

TEST_CASE("a star gives text back when what follows it appears again") {
  CHECK(glob_match("*.proj.*", "blocks.0.attn.proj.proj.bias"));
  CHECK(glob_match("a*b*c", "aXbXbXc"));
  CHECK_FALSE(glob_match("a*b*c", "aXbXbX"));
}

TEST_CASE("a question mark stands for exactly one character") {
  CHECK(glob_match("blocks.?.norm1.*", "blocks.3.norm1.bias"));
  CHECK_FALSE(glob_match("blocks.?.norm1.*", "blocks.12.norm1.bias"));
}
