// Every file of hostile/yaml and hostile/config of the shared test data: refused with a place, or
// read as what it says; never a crash, another exception or a silent misreading.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "config/message.h"
#include "config/scalar.h"
#include "config/yaml.h"
#include "skip.h"

using namespace fovea::config;
using fovea::test::message;
using fovea::test::test_data;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> yaml_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_SUITE("config hostile (needs the shared test data)") {
  TEST_CASE("every invalid file of the YAML test suite is refused, with line and column") {
    const std::string folder = test_data("hostile/yaml/invalid");
    if (folder.empty()) FOVEA_SKIP("no shared test data");
    const std::vector<fs::path> files = yaml_files(folder);
    CHECK(files.size() >= 80);
    for (const fs::path& file : files) {
      CAPTURE(file.filename().string());
      const std::string text = message([&] { load(file.string()); });
      CHECK(text.starts_with(file.string() + ":"));
      CHECK(text.find_first_of("123456789", file.string().size()) == file.string().size() + 1);
    }
  }

  TEST_CASE(
      "every valid file of the YAML test suite is read as its JSON, or refused for a stated "
      "reason") {
    const std::string folder = test_data("hostile/yaml/valid");
    if (folder.empty()) FOVEA_SKIP("no shared test data");
    // Outside of what a config may hold, or what yaml-cpp 0.7 can read (the last four).
    const std::vector<std::string> reasons = {"tags are not supported",
                                              "directives (%) are not supported",
                                              "a second document",
                                              "a key must be text",
                                              "illegal tab",
                                              "unknown token"};
    int read = 0, refused = 0;
    for (const fs::path& file : yaml_files(folder)) {
      CAPTURE(file.filename().string());
      Node node;
      const std::string text = message([&] { node = load(file.string()); });
      if (text != "nothing was thrown") {
        ++refused;
        CAPTURE(text);
        CHECK(std::any_of(reasons.begin(), reasons.end(), [&](const std::string& reason) {
          return text.find(reason) != std::string::npos;
        }));
        continue;
      }
      ++read;
      fs::path expected = file;
      const std::string json = text_of(expected.replace_extension(".json"));
      if (json.find_first_not_of(" \n") == std::string::npos) {
        CHECK(node.is_null());
      } else {
        CHECK(nlohmann::json::parse(node.json()) == nlohmann::json::parse(json));
        CHECK(nlohmann::json::parse(parse(node.yaml(), "again").json()) ==
              nlohmann::json::parse(json));
      }
    }
    CHECK(read >= 46);
    CHECK(refused <= 14);
  }

  TEST_CASE(
      "the hostile configurations are refused, or hold nothing that a number option would take") {
    const std::string folder = test_data("hostile/config");
    if (folder.empty()) FOVEA_SKIP("no shared test data");
    const auto refusal = [&](const std::string& name) {
      return message([&] { load(folder + "/" + name); })
          .substr(std::min(folder.size(), std::size_t{1000}));
    };
    CHECK(refusal("billion_laughs.yaml").find(": more than 100000 values") != std::string::npos);
    CHECK(refusal("deep_nest.yaml") == "/deep_nest.yaml:1:66: nested deeper than 64");
    CHECK(refusal("dup_key.yaml") == "/dup_key.yaml:2:1: key 'lr' is given twice, first in line 1");
    CHECK(refusal("tab_indent.yaml") ==
          "/tab_indent.yaml:2:1: a tab in the indentation; use spaces");
    CHECK(load(folder + "/empty.yaml").is_null());
    CHECK(load(folder + "/utf8_bom_crlf.yaml").json() == R"({"lr": 0.1, "steps": 5})");
    const Node odd = load(folder + "/octal_norway.yaml");
    for (const char* key : {"a", "b", "e", "g"})
      CHECK_FALSE(to_number(odd.find(key)->text()).has_value());
    CHECK_FALSE(to_bool(odd.find("b")->text()).has_value());
    CHECK(odd.get_number("c") == 1000);
    CHECK(odd.get_int("d") == 1000);
    CHECK(odd.get_number("f") == 0.5);
    const Node infinite = load(folder + "/nan_inf.yaml");
    for (const char* key : {"lr", "wd"})
      CHECK_FALSE(to_number(infinite.find(key)->text()).has_value());
  }
}
