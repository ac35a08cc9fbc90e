// The rules every file keeps: a charter for its folder, a size, and a home that can be found.

#include <regex>

#include <doctest/doctest.h>

#include "architecture/source_tree.h"
#include "autograd/op_registry.h"

using namespace fovea::test;
namespace fs = std::filesystem;

TEST_SUITE("architecture") {
  TEST_CASE("every layer has a charter of one paragraph") {
    std::vector<fs::path> folders = {root() / "apps"};
    for (const auto& entry : fs::directory_iterator(root() / "src")) {
      // A folder without files is no layer yet.
      if (entry.is_directory() && !fs::is_empty(entry.path())) folders.push_back(entry.path());
    }
    for (const fs::path& folder : folders) {
      INFO(folder.filename().string(), "/README.md");
      const std::string charter = text_of(folder / "README.md");
      CHECK(charter.size() >= 80);
      CHECK(charter.size() <= 1500);
    }
  }

  TEST_CASE("no file is longer than 400 lines, CUDA files 600") {
    for (const SourceFile& file : source_files({"src", "apps", "tests"})) {
      INFO(file.path, " has ", file.lines.size(), " lines");
      CHECK(file.lines.size() <= (file.is_cuda() ? 600u : 400u));
    }
  }

  TEST_CASE("every header of src and apps says once-only and what it is for") {
    for (const SourceFile& file : source_files({"src", "apps"})) {
      if (!file.is_header()) continue;
      INFO(file.path);
      REQUIRE(file.lines.size() >= 2);
      CHECK(file.lines[0] == "#pragma once");
      CHECK(file.lines[1].rfind("//", 0) == 0);
    }
  }

  TEST_CASE("no using-directive stands at file scope outside the tests") {
    for (const SourceFile& file : source_files({"src", "apps"})) {
      for (const std::string& line : file.lines) {
        INFO(file.path, ": ", line);
        CHECK(line.rfind("using namespace", 0) != 0);
      }
    }
  }

  TEST_CASE("nothing is left unfinished in the code") {
    // Spelled in two parts, so that this file does not find itself.
    const std::regex mark(
        "\\b(TO"
        "DO|FIX"
        "ME|XX"
        "X|HA"
        "CK)\\b");
    for (const SourceFile& file : source_files({"src", "apps", "tests"})) {
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        INFO(file.path, ":", i + 1);
        CHECK_FALSE(std::regex_search(file.lines[i], mark));
      }
    }
  }

  TEST_CASE("every op's files exist where the registry says") {
    CHECK(fovea::op_specs().size() >= 10);
    for (const fovea::OpSpec& op : fovea::op_specs()) {
      INFO(std::string(op.name));
      CHECK_FALSE(op.header.empty());
      CHECK_FALSE(op.autograd.empty());
      for (const std::string_view file : {op.header, op.autograd, op.kernels, op.cpu, op.cuda}) {
        if (file.empty()) continue;
        INFO(std::string(file));
        CHECK(fs::is_regular_file(root() / file));
      }
      const std::string header = text_of(root() / op.header);
      CHECK_MESSAGE(header.find(std::string(op.name) + "(") != std::string::npos,
                    "the header does not declare the op");
    }
  }

  TEST_CASE("every op of an op header is in the registry") {
    const std::regex declaration(
        "^(Var|std::vector<Var>|[A-Z][A-Za-z]+) ([a-z_0-9]+)\\(Ctx& ctx.*");
    int declared = 0;
    for (const SourceFile& file : source_files({"src/autograd/ops"})) {
      if (!file.is_header()) continue;
      for (const std::string& line : file.lines) {
        std::smatch match;
        if (!std::regex_match(line, match, declaration)) continue;
        ++declared;
        const std::string name = match[2];
        bool found = false;
        for (const fovea::OpSpec& op : fovea::op_specs())
          found = found || op.name == name;
        CHECK_MESSAGE(found, file.path << " declares " << name << ", which op_specs() lacks");
      }
    }
    CHECK(declared >= 20);
  }
}
