#include "data/corpus.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/text_files.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;
namespace fs = std::filesystem;

namespace {

std::string error_of(const std::string& path, Split split = Split::train,
                     double val_fraction = 0.1) {
  CHECK_THROWS_AS(Corpus::load(path, split, val_fraction), IoError);
  return message_of([&] { Corpus::load(path, split, val_fraction); });
}

}  // namespace

TEST_CASE("a folder is read in bytewise order of relative paths, hidden names skipped") {
  const TempFolder folder;
  for (const char* name : {"b", "a/z", "a.txt", "B", ".hidden", ".git/x", "a/.y", "a/b/c"})
    folder.put(name, name);
  CHECK(list_files(folder.path()) == std::vector<std::string>{"B", "a.txt", "a/b/c", "a/z", "b"});
  const Corpus corpus = Corpus::load(folder.path(), Split::train, 0);
  CHECK(corpus.bytes == "Ba.txta/b/ca/zb");
  REQUIRE(corpus.documents.size() == 5);
  CHECK(corpus.documents[2].begin == 6);
  CHECK(corpus.documents[2].path == folder / "a/b/c");
}

TEST_CASE("links are followed, and a loop of links ends") {
  const TempFolder folder, elsewhere;
  folder.put("a/x", "x");
  elsewhere.put("y", "y");
  fs::create_directory_symlink(folder.path(), folder / "a/up");
  fs::create_directory_symlink(elsewhere.path(), folder / "other");
  fs::create_symlink(elsewhere / "y", folder / "z");
  CHECK(list_files(folder.path()) == std::vector<std::string>{"a/x", "other/y", "z"});
}

TEST_CASE("a byte order mark and CRs before LF are removed and counted") {
  const TempFolder folder;
  folder.put("a",
             "\xEF\xBB\xBF"
             "one\r\ntwo\r\r\nthree\rfour\r");
  folder.put("b",
             "\xEF\xBB\xBF\xEF\xBB\xBF"
             "b");  // a second U+FEFF is text
  const Corpus corpus = Corpus::load(folder.path(), Split::train, 0);
  CHECK(corpus.bytes ==
        "one\ntwo\r\nthree\rfour\r\xEF\xBB\xBF"
        "b");
  CHECK(corpus.byte_order_marks == 2);
  CHECK(corpus.carriage_returns == 2);
  CHECK(contains(corpus.summary(),
                 "2 files, 24 clean bytes (removed 2 byte order marks and 2 CR before LF)"));
}

TEST_CASE("validation is the tail of every file, and train the rest") {
  const TempFolder folder;
  folder.put("a", "0123456789");
  folder.put("b", "abc");
  folder.put("c", "ABCDEFGHIJKLMNOPQRST");
  CHECK(Corpus::load(folder.path(), Split::train, 0.25).bytes == "01234567abcABCDEFGHIJKLMNO");
  CHECK(Corpus::load(folder.path(), Split::validation, 0.25).bytes == "89PQRST");
  CHECK(
      contains(error_of(folder.path(), Split::validation, 0), "the validation split has no bytes"));
  CHECK(contains(error_of(folder.path(), Split::test), "has no test split"));
  CHECK_THROWS_AS(Corpus::load(folder.path(), Split::train, 1.0), ConfigError);
}

TEST_CASE("folders named after the splits are the splits, and nothing else is read") {
  const TempFolder folder;
  folder.put("train/1", "train");
  folder.put("validation/2", "held out");
  folder.put("test/3", "test");
  folder.put("metadata.csv", "no text");
  CHECK(Corpus::load(folder.path(), Split::train, 0.5).bytes == "train");
  CHECK(Corpus::load(folder.path(), Split::validation, 0.5).bytes == "held out");
  CHECK(Corpus::load(folder.path(), Split::test, 0.5).bytes == "test");
  folder.put("valid/4", "too many");
  CHECK(contains(error_of(folder.path(), Split::validation), "keep one"));
}

TEST_CASE(
    "without a validation folder the tail of the training files is held out, never the test "
    "folder") {
  const TempFolder folder;
  folder.put("train/1", "0123456789");
  folder.put("test/3", "test");
  CHECK(Corpus::load(folder.path(), Split::train, 0.2).bytes == "01234567");
  CHECK(Corpus::load(folder.path(), Split::validation, 0.2).bytes == "89");
}

TEST_CASE("what is no corpus says so, with the path and what to do") {
  const TempFolder folder;
  CHECK(contains(error_of(folder / "none"), "none: No such file or directory; data.path must be"));
  CHECK(contains(error_of(""), "data.path is empty"));
  fs::create_directory(folder / "empty");
  CHECK(contains(error_of(folder / "empty"), "has no file"));
  CHECK(contains(error_of(folder.put("nothing", "")), "has no bytes"));
  CHECK(contains(error_of(folder.put("only_mark", "\xEF\xBB\xBF")), "has no bytes"));
  CHECK(contains(error_of(folder.put("x.txt.gz", "anything")), "unpack it first"));
  CHECK(contains(error_of(folder.put("x", "\x1f\x8b\x08 rest")), "unpack it first"));
  CHECK(contains(error_of(folder.put("u", "\xff\xfeh\x01")), "UTF-16"));
  CHECK(contains(error_of(folder.put("z", std::string("\0h\0i\0!", 6))), "is not text"));
  CHECK(
      contains(error_of(folder.put("w", std::string("text\xff then \0 a zero and more of it", 30))),
               "is not text"));
  fs::create_symlink(folder / "gone", folder / "empty/link");
  CHECK(contains(error_of(folder / "empty"), "empty/link"));
  CHECK(contains(error_of("/dev/null"), "not a regular file"));
}

TEST_CASE("a few zero bytes in UTF-8 text, and 8-bit encodings, are text") {
  const TempFolder folder;
  CHECK(Corpus::load(folder.put("a", std::string("one\0two\0three", 13)), Split::train, 0)
            .bytes.size() == 13);
  CHECK(Corpus::load(folder.put("b", "caf\xe9"), Split::train, 0).bytes == "caf\xe9");
}

TEST_CASE("the hostile texts load or are refused with an IoError (test data)") {
  const std::string root = test::test_data("hostile/text");
  if (root.empty()) FOVEA_SKIP("no hostile/text");
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    CAPTURE(name);
    const std::string message = message_of([&] { Corpus::load(path, Split::train, 0); });
    const bool refused = name.ends_with(".gz") || name.starts_with("utf16") ||
                         name.starts_with("utf32") || name == "empty.txt" ||
                         name == "bom_only.txt" || name == "all_bytes.bin";
    if (refused) CHECK(message.starts_with(path + ": "));
    if (name.ends_with(".txt") && !refused && !name.starts_with("utf8_invalid"))
      CHECK(message.empty());
  }
}
