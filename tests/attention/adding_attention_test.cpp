// The method of docs/adding-attention.md is copied out of the page, built with its one line in the
// registry, and keeps the contract.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "process.h"
#include "skip.h"

using namespace fovea;
namespace fs = std::filesystem;

namespace {

// The first ```cpp block behind `heading`, without its fences.
std::string code_after(const std::string& page, const std::string& heading) {
  const std::size_t start = page.find(heading);
  REQUIRE_MESSAGE(start != std::string::npos, heading);
  const std::string fence = "```cpp\n";
  const std::size_t begin = page.find(fence, start) + fence.size();
  return page.substr(begin, page.find("```", begin) - begin);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Runs a shell line in `folder`; its output on failure is the test's message.
std::string shell(const fs::path& folder, const std::string& line) {
  const test::Finished done =
      test::run_program({"sh", "-c", "cd '" + folder.string() + "' && " + line});
  REQUIRE_MESSAGE(done.code == 0, line << "\n" << done.out << done.err);
  return done.out;
}

// How this build compiles src/attention/registry.cpp.
std::string compile_line(const fs::path& build) {
  const config::Node commands = config::parse(
      test::file_text((build / "compile_commands.json").string()), "compile_commands.json");
  for (const config::Node& entry : commands.items()) {
    if (entry.find("file")->text().ends_with("src/attention/registry.cpp"))
      return entry.find("command")->text();
  }
  return "";
}

// How this build links `target`, with more objects before its own (or instead of them) and another
// output.
std::string link_line(const fs::path& build, const std::string& target, bool keep_own,
                      const std::string& objects, const std::string& output) {
  const std::string all = shell(build, "ninja -t commands " + target + " | tail -1");
  std::string out;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find_first_of(" \n", at), all.size());
    const std::string word = all.substr(at, end - at);
    if (word == "-o")
      out += objects + " -o ";
    else if (word == target)
      out += output + " ";
    else if (keep_own || !word.ends_with(".o"))
      out += word + " ";
    at = end + 1;
  }
  return out;
}

// Stands for the binary in builds without apps.
[[maybe_unused]] constexpr const char* kMain = R"(
#include <iostream>
#include "attention/contract.h"
int main() {
  using namespace fovea::attention;
  int failed = 0, passed = 0;
  for (const ContractRow& row : check_contract(*find_attention("cosine"))) {
    ++(row.passed ? passed : failed);
    if (!row.passed) std::cout << row.check << ": " << row.value << " > " << row.bound << " " << row.note << "\n";
  }
  std::cout << passed << " passed, " << failed << " failed, methods: " << attention_specs().size() << "\n";
  return failed == 0 && passed > 20 ? 0 : 1;
}
)";

}  // namespace

TEST_CASE("the method of docs/adding-attention.md is built with one line and keeps the contract") {
  const fs::path root = FOVEA_SOURCE_DIR,
                 build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  if (!fs::exists(build / "build.ninja") || !fs::exists(build / "compile_commands.json")) {
    FOVEA_SKIP("needs the Ninja build folder that made this test");
  }
  const std::string page = test::file_text((root / "docs/adding-attention.md").string());
  REQUIRE(!page.empty());
  std::string name = (fs::temp_directory_path() / "fovea_adding_XXXXXX").string();
  const fs::path work = ::mkdtemp(name.data());

  write(work / "src/attention/cosine/cosine.cpp",
        code_after(page, "src/attention/cosine/cosine.cpp"));
  const std::string list = "#define FOVEA_ATTENTION_METHODS(method) \\\n";
  const std::string line = code_after(page, "src/attention/registry.cpp");
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  write(
      work / "src/attention/registry.cpp",
      replaced(test::file_text((root / "src/attention/registry.cpp").string()), list, list + line));

  const std::string compile = compile_line(build);
  const auto compiled = [&](const std::string& source) {
    const std::string object = (work / source).string() + ".o";
    const std::size_t output = compile.find(" -o ");
    REQUIRE(output != std::string::npos);
    shell(build,
          compile.substr(0, output) + " -Werror -o " + object + " -c " + (work / source).string());
    return object + " ";
  };
  const std::string method =
      compiled("src/attention/cosine/cosine.cpp") + compiled("src/attention/registry.cpp");
#ifdef FOVEA_BINARY
  const std::string binary = fs::relative(FOVEA_BINARY, build).string();
  shell(build, link_line(build, binary, true, method, (work / "fovea").string()));
  const std::string run =
      "LD_LIBRARY_PATH=" + fs::path(FOVEA_BINARY).parent_path().string() + " ./fovea ";
  const std::string said = shell(work, run + "check attention cosine");
  CHECK(shell(work, run + "list attention").find("cosine") != std::string::npos);
#else
  write(work / "main.cpp", kMain);
  shell(build, link_line(build, "tests/test_attention", false, method + compiled("main.cpp"),
                         (work / "toy").string()));
  const std::string said = shell(work, "./toy");
#endif
  INFO(said);
  CHECK(said.find(" 0 failed") != std::string::npos);
  fs::remove_all(work);
}
