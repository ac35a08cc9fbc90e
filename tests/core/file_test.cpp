#include "core/file.h"

#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "skip.h"

using namespace fovea;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "fovea_file_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

}  // namespace

TEST_CASE("a written file reads back, NULs included") {
  const Folder folder;
  const std::string bytes("a\0b\n\xff", 5);
  write_file_synced(folder / "x", bytes);
  CHECK(read_file(folder / "x") == bytes);
  write_file_synced(folder / "x", "");
  CHECK(read_file(folder / "x").empty());
}

TEST_CASE("a file error names the path and the system's reason") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(read_file(folder / "none"),
                       (folder.path + "/none: cannot be opened: No such file or directory").c_str(),
                       IoError);
  CHECK_THROWS_AS(read_file(folder.path), IoError);
  CHECK_THROWS_AS(InputFile(folder.path), IoError);
  CHECK_THROWS_AS(InputFile("/dev/null"), IoError);
  CHECK_THROWS_AS(write_file_synced(folder / "no/such", "x"), IoError);
  CHECK_THROWS_AS(sync_folder(folder / "none"), IoError);
  CHECK_THROWS_AS(rename_over(folder / "none", folder / "x"), IoError);
}

TEST_CASE("a full disk is an error") {
  if (!fs::exists("/dev/full")) FOVEA_SKIP("no /dev/full");
  CHECK_THROWS_WITH_AS(write_file_synced("/dev/full", "bytes"),
                       "/dev/full: cannot be written beyond byte 0: No space left on device",
                       IoError);
  CHECK(fs::exists("/dev/full"));
}

TEST_CASE("a file that was not finished is removed") {
  const Folder folder;
  {
    OutputFile file(folder / "torn");
    file.write("half");
    CHECK(fs::exists(folder / "torn"));
  }
  CHECK_FALSE(fs::exists(folder / "torn"));
}

TEST_CASE("rename_over replaces the file of that name") {
  const Folder folder;
  write_file_synced(folder / "old", "old");
  write_file_synced(folder / "new", "new");
  rename_over(folder / "new", folder / "old");
  CHECK(read_file(folder / "old") == "new");
  CHECK_FALSE(fs::exists(folder / "new"));
  fs::create_directory(folder / "step.tmp");
  rename_over(folder / "step.tmp", folder / "step/");
  CHECK(fs::is_directory(folder / "step"));
}

TEST_CASE("reading beyond the end of an open file is an error") {
  const Folder folder;
  write_file_synced(folder / "x", "0123456789");
  const InputFile file(folder / "x");
  char bytes[4] = {};
  file.read_at(6, bytes, 4);
  CHECK(std::string(bytes, 4) == "6789");
  CHECK_THROWS_WITH_AS(file.read_at(8, bytes, 4),
                       (folder.path + "/x: ends at byte 10, 2 bytes too early").c_str(), IoError);
}
