#pragma once
// FOVEA_SKIP("why") ends the current test case as skipped: printed by name and counted, never green
// in silence. `test_data("gutenberg/metadata.csv")` is the path of a shared test file, or ""
// without it.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace fovea::test {

void mark_skipped(const char* reason);

// A file of the project's shared test data: under $FOVEA_TEST_DATA, else ../shared/data beside the
// checkout. Empty if it is not there.
inline std::string test_data(const std::string& name) {
  const char* root = std::getenv("FOVEA_TEST_DATA");
  const std::filesystem::path base =
      root != nullptr ? std::filesystem::path(root)
                      : std::filesystem::path(FOVEA_SOURCE_DIR) / "../shared/data";
  const std::filesystem::path file = base / name;
  return std::filesystem::exists(file) ? file.string() : std::string();
}

}  // namespace fovea::test

#define FOVEA_SKIP(reason)               \
  do {                                   \
    ::fovea::test::mark_skipped(reason); \
    return;                              \
  } while (false)
