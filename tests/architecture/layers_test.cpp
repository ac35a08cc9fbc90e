// Who may include whom: the layer table of the design, enforced.

#include <map>
#include <set>

#include <doctest/doctest.h>

#include "architecture/source_tree.h"

using namespace fovea::test;

namespace {

using Names = std::set<std::string>;

// What each folder of src/ may include besides itself.
const std::map<std::string, Names> kAllowed = {
    {"core", {}},
    {"config", {"core"}},
    {"kernels", {"core"}},
    {"autograd", {"core", "kernels"}},
    {"nn", {"core", "config", "autograd"}},
    {"attention", {"core", "config", "kernels", "autograd", "nn"}},
    {"models", {"core", "config", "autograd", "nn", "attention"}},
    {"data", {"core", "config"}},
    {"optim", {"core", "config", "kernels", "nn"}},
    {"dist", {"core", "config", "kernels", "nn", "optim"}},
    {"train",
     {"core", "config", "kernels", "autograd", "nn", "attention", "models", "data", "optim",
      "dist"}},
    // It times what train builds, down to single kernels.
    {"study",
     {"core", "config", "kernels", "autograd", "nn", "attention", "models", "data", "dist",
      "train"}},
};

// Single headers allowed besides: optimizer and buckets are handed a Ctx, and record nothing with
// it; buckets hear from gradients that they are ready.
const std::map<std::string, Names> kAllowedHeaders = {
    {"optim", {"autograd/ctx.h"}},
    {"dist", {"autograd/ctx.h", "autograd/tape.h", "autograd/var.h"}},
};

// CUDA sources see plain data only, so that they compile in seconds.
const Names kCudaMaySee = {"core/view.h",  "core/cuda_queue.h", "core/cost.h",  "core/device.h",
                           "core/dtype.h", "core/half.h",       "core/philox.h"};

// Third-party headers and the only files of src/ that may name them.
const std::map<std::string, Names> kThirdParty = {
    {"yaml-cpp/", {"src/config/yaml.cpp"}},   {"spdlog/", {"src/core/log.cpp"}},
    {"fmt/", {"src/core/log.cpp"}},           {"gloo/", {"src/dist/gloo.cpp"}},
    {"nccl.h", {"src/dist/cuda_nccl.cpp"}},   {"sqlite3.h", {"src/study/database.cpp"}},
    {"boost/", {"src/study/statistics.cpp"}},
};
const Names kNeverInHeaders = {"yaml-cpp/", "spdlog/",  "fmt/",    "nlohmann/", "xxhash.h",
                               "cblas.h",   "openblas", "CLI/",    "nccl.h",    "cublas",
                               "cusparse",  "doctest/", "pcre2.h", "zlib.h",    "gloo/",
                               "sqlite3.h", "boost/"};

bool starts_with(const std::string& text, const std::string& head) {
  return text.rfind(head, 0) == 0;
}

std::string first_folder(const std::string& path) {
  return path.substr(0, path.find('/'));
}

bool may_include(const std::string& folder, const std::string& path) {
  const std::string target = first_folder(path);
  const auto headers = kAllowedHeaders.find(folder);
  return target == folder || kAllowed.at(folder).count(target) == 1 ||
         (headers != kAllowedHeaders.end() && headers->second.count(path) == 1);
}

}  // namespace

TEST_SUITE("architecture") {
  TEST_CASE("a file includes only the layers that the table allows its folder") {
    for (const SourceFile& file : source_files({"src"})) {
      const std::string folder = first_folder(file.path.substr(4));
      REQUIRE_MESSAGE(kAllowed.count(folder) == 1, file.path << " is in a folder without a layer");
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        const std::string name = included(file.lines[i]);
        if (name.empty() || name[0] != '"') continue;
        const std::string path = name.substr(1), target = first_folder(path);
        INFO(file.path, ":", i + 1, " includes ", path);
        CHECK_MESSAGE(path.find('/') != std::string::npos, "paths start at src/");
        CHECK(path.find("..") == std::string::npos);
        CHECK(may_include(folder, path));
        if (file.is_cuda() && target == "core") CHECK(kCudaMaySee.count(path) == 1);
      }
    }
  }

  TEST_CASE("third-party headers stay in the sources that wrap them") {
    for (const SourceFile& file : source_files({"src", "apps"})) {
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        const std::string name = included(file.lines[i]);
        if (name.empty() || name[0] != '<') continue;
        const std::string path = name.substr(1);
        INFO(file.path, ":", i + 1, " includes ", path);
        for (const auto& [head, homes] : kThirdParty) {
          if (starts_with(path, head) && file.inside("src")) CHECK(homes.count(file.path) == 1);
        }
        for (const std::string& head : kNeverInHeaders) {
          if (file.is_header()) CHECK_FALSE(starts_with(path, head));
        }
        if (starts_with(path, "CLI/")) CHECK(file.inside("apps"));
      }
    }
  }

  TEST_CASE("only dispatch, devices and launching know whether CUDA is built in") {
    const Names homes = {"src/kernels/dispatch.h", "src/core/device.cpp", "src/dist/launch.cpp"};
    for (const SourceFile& file : source_files({"src", "apps"})) {
      if (homes.count(file.path) == 1) continue;
      for (const std::string& line : file.lines) {
        INFO(file.path);
        CHECK(line.find("FOVEA_WITH_CUDA") == std::string::npos);
      }
    }
  }

  TEST_CASE("main and the argument parser are the only places of apps that catch") {
    for (const SourceFile& file : source_files({"apps"})) {
      if (file.path == "apps/fovea.cpp" || file.path == "apps/command_line.cpp") continue;
      for (const std::string& line : file.lines) {
        INFO(file.path, ": ", line);
        CHECK(line.find("} catch (") == std::string::npos);
      }
    }
  }
}
