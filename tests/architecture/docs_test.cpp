// The docs that `fovea list` writes are current, and those written by hand point at files that
// exist.

#include <regex>

#include <doctest/doctest.h>

#include "architecture/source_tree.h"
#include "process.h"

using namespace fovea::test;
namespace fs = std::filesystem;

TEST_SUITE("architecture") {
  TEST_CASE(
      "docs/attention.md, tasks.md, ops.md and config.md are what fovea list --markdown prints") {
    for (const std::string name : {"attention", "tasks", "ops", "config"}) {
      const Finished list = run_fovea({"list", name, "--markdown"});
      REQUIRE(list.code == 0);
      const std::string file = "docs/" + name + ".md";
      CHECK_MESSAGE(text_of(root() / file) == list.out,
                    file << " is stale: fovea list " << name << " --markdown > " << file);
    }
  }

  TEST_CASE("README and the hand-written docs name only files that exist") {
    // `path/with.ext` or `folder/` in backquotes, below a folder of the tree.
    const std::regex path(
        "`((?:src|apps|tests|scripts|configs|docs|third_party)/[A-Za-z0-9_./-]*)`");
    std::vector<fs::path> documents = {root() / "README.md"};
    for (const auto& entry : fs::directory_iterator(root() / "docs")) {
      if (entry.path().extension() == ".md") documents.push_back(entry.path());
    }
    for (const fs::path& document : documents) {
      const std::string text = text_of(document);
      for (std::sregex_iterator match(text.begin(), text.end(), path), end; match != end; ++match) {
        const std::string name = (*match)[1];
        CHECK_MESSAGE(fs::exists(root() / name), document.filename().string() << " names " << name);
      }
    }
  }

  TEST_CASE("the binary and the build name the same version") {
    const std::string build = text_of(root() / "CMakeLists.txt");
    std::smatch version;
    REQUIRE(std::regex_search(build, version, std::regex("project\\(fovea VERSION ([0-9.]+)")));
    CHECK(run_fovea({"--version"}).out == "fovea " + version.str(1) + "\n");
  }
}
