#include "data/text_layout.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/text_files.h"
#include "temp_folder.h"
#include "write_gzip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::gzip;
using fovea::test::message_of;
using fovea::test::TempFolder;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

Names names(const TextSplit& split) {
  Names out;
  for (const TextFile& file : split.files)
    out.push_back(file.name);
  return out;
}

std::string error_of(const std::string& path, Split split = Split::train) {
  CHECK_THROWS_AS(find_text(path, split), IoError);
  return message_of([&] { find_text(path, split); });
}

void put_all(const TempFolder& folder, const Names& files) {
  for (const std::string& name : files)
    folder.put(name, name);
}

}  // namespace

TEST_CASE("a folder is read in bytewise order of relative paths, hidden names skipped") {
  const TempFolder folder;
  put_all(folder, {"b", "a/z", "a.txt", "B", ".hidden", ".git/x", "a/.y", "a/b/c"});
  CHECK(list_files(folder.path()) == Names{"B", "a.txt", "a/b/c", "a/z", "b"});
  const TextSplit split = find_text(folder.path(), Split::train);
  CHECK(names(split) == Names{"B", "a.txt", "a/b/c", "a/z", "b"});
  CHECK(split.files[2].path == folder / "a/b/c");
  CHECK(split.layout == "plain folder");
  CHECK(split.by_fraction);
}

TEST_CASE("names that are numbers come in their order and before others") {
  const TempFolder folder;
  put_all(folder,
          {"10.txt", "9.txt", "100.txt.gz", "010", "2a", "10b", "-1", "9/10", "9/8", "9/b"});
  CHECK(list_files(folder.path()) ==
        Names{"9.txt", "9/8", "9/10", "9/b", "010", "10.txt", "100.txt.gz", "-1", "10b", "2a"});
  const TempFolder books;
  put_all(books, {"train/10.txt", "train/9.txt"});
  CHECK(names(find_text(books.path(), Split::train)) == Names{"train/9.txt", "train/10.txt"});
  const TextSplit matched = find_text(books / "train/*.txt", Split::train);
  CHECK(matched.files[0].path == books / "train/9.txt");
}

TEST_CASE("links are followed, and a loop of links ends") {
  const TempFolder folder, elsewhere;
  folder.put("a/x", "x");
  elsewhere.put("y", "y");
  fs::create_directory_symlink(folder.path(), folder / "a/up");
  fs::create_directory_symlink(elsewhere.path(), folder / "other");
  fs::create_symlink(elsewhere / "y", folder / "z");
  CHECK(list_files(folder.path()) == Names{"a/x", "other/y", "z"});
}

TEST_CASE("a file is a text, shared out by fraction") {
  const TempFolder folder;
  const TextSplit split = find_text(folder.put("x.txt", "x"), Split::validation);
  CHECK(names(split) == Names{"x.txt"});
  CHECK(split.layout == "one file");
  CHECK(split.by_fraction);
  CHECK(contains(error_of(folder / "x.txt", Split::test), "has no test split"));
}

TEST_CASE("folders named after the splits are the splits, and nothing else is read") {
  const TempFolder folder;
  put_all(folder, {"train/1", "train/deep/2", "validation/2", "test/3", "metadata.csv"});
  CHECK(names(find_text(folder.path(), Split::train)) == Names{"train/1", "train/deep/2"});
  CHECK(names(find_text(folder.path(), Split::validation)) == Names{"validation/2"});
  const TextSplit test = find_text(folder.path(), Split::test);
  CHECK(names(test) == Names{"test/3"});
  CHECK(test.layout == "split folders");
  CHECK_FALSE(test.by_fraction);
  folder.put("valid/4", "too many");
  CHECK(contains(error_of(folder.path(), Split::validation), "keep one"));
}

TEST_CASE("without a validation folder the training files are shared out, never the test folder") {
  const TempFolder folder;
  put_all(folder, {"train/1", "test/3"});
  for (const Split split : {Split::train, Split::validation}) {
    CHECK(names(find_text(folder.path(), split)) == Names{"train/1"});
    CHECK(find_text(folder.path(), split).by_fraction);
  }
  CHECK_FALSE(find_text(folder.path(), Split::test).by_fraction);
}

TEST_CASE("WikiText's files are splits; tokens belong to words, raw to everything else") {
  const TempFolder folder;
  put_all(folder, {"wiki.train.tokens", "wiki.valid.tokens.gz", "wiki.test.tokens",
                   "wiki.train.raw", "wiki.valid.raw", "wiki.test.raw.gz", "README"});
  const TextSplit words = find_text(folder.path(), Split::validation, WikiTextForm::tokens);
  CHECK(names(words) == Names{"wiki.valid.tokens.gz"});
  CHECK(words.layout == "wikitext tokens");
  CHECK_FALSE(words.by_fraction);
  const TextSplit raw = find_text(folder.path(), Split::test, WikiTextForm::raw);
  CHECK(names(raw) == Names{"wiki.test.raw.gz"});
  CHECK(raw.layout == "wikitext raw");
  fs::remove(folder / "wiki.train.raw");
  fs::remove(folder / "wiki.valid.raw");
  fs::remove(folder / "wiki.test.raw.gz");
  CHECK(names(find_text(folder.path(), Split::test, WikiTextForm::raw)) ==
        Names{"wiki.test.tokens"});
}

TEST_CASE("WikiText is known by its files' names or its first lines, however it lies") {
  const TempFolder folder;
  const std::string text = " \n = Robert Boulter = \n \n Robert Boulter is an actor . \n";
  const auto layout = [&](const std::string& path) {
    return find_text(folder / path, Split::validation).layout;
  };
  folder.put("a/wiki.test.tokens.gz", gzip("words"));
  CHECK(layout("a/wiki.test.tokens.gz") == "one file of wikitext");
  CHECK(layout("a/wiki*") == "pattern of wikitext");
  folder.put("b/test.txt", text);
  folder.put("b/valid.txt", text);
  CHECK(layout("b/test.txt") == "one file of wikitext");
  CHECK(layout("b") == "wikitext txt");
  folder.put("c/any.gz", gzip(text));
  CHECK(layout("c") == "plain folder of wikitext");
  folder.put("c/other", "= A heading =\n");
  CHECK(layout("c") == "plain folder");
  folder.put("d/test.txt", "a text");
  folder.put("d/valid.txt", text);
  CHECK(layout("d") == "wikitext txt");
  CHECK(find_text(folder / "d", Split::test).layout == "split files");
}

TEST_CASE("split files of other names, numbered or not") {
  const TempFolder a, b, c;
  put_all(a, {"train.txt", "valid.txt", "test.txt", "notes.md"});
  CHECK(names(find_text(a.path(), Split::validation)) == Names{"valid.txt"});
  CHECK(find_text(a.path(), Split::train).layout == "split files");
  CHECK_FALSE(find_text(a.path(), Split::train).by_fraction);
  put_all(b, {"c4-train.00000-of-00002.json.gz", "c4-train.00001-of-00002.json.gz",
              "c4-validation.00000-of-00001.json.gz"});
  CHECK(names(find_text(b.path(), Split::train)) ==
        Names{"c4-train.00000-of-00002.json.gz", "c4-train.00001-of-00002.json.gz"});
  CHECK(names(find_text(b.path(), Split::validation)) ==
        Names{"c4-validation.00000-of-00001.json.gz"});
  put_all(c, {"train-00000-of-00001.jsonl"});
  CHECK(find_text(c.path(), Split::validation).by_fraction);
  CHECK(contains(error_of(c.path(), Split::test),
                 "has no test split; looked for test.jsonl, wiki.test.jsonl (each also with .gz), "
                 "and there is \"train-00000-of-00001.jsonl\""));
}

TEST_CASE("a folder that has a file test.txt among others is a plain folder") {
  const TempFolder folder;
  put_all(folder, {"test.txt", "essay.txt", "unit-train.txt"});
  CHECK(find_text(folder.path(), Split::train).layout == "plain folder");
  CHECK(names(find_text(folder.path(), Split::train)).size() == 3);
}

TEST_CASE("a pattern takes what it matches, in bytewise order, folders with all below them") {
  const TempFolder folder;
  put_all(folder, {"b1.txt", "B2.txt", "a.md", "bin/x", "bin/y/z"});
  const TextSplit split = find_text(folder / "[bB]*", Split::train);
  CHECK(split.layout == "pattern");
  CHECK(split.by_fraction);
  REQUIRE(split.files.size() == 4);
  CHECK(split.files[0].path == folder / "B2.txt");
  CHECK(split.files[1].path == folder / "b1.txt");
  CHECK(split.files[3].path == folder / "bin/y/z");
  CHECK(contains(error_of(folder / "*.json"), "matches no file"));
  // A name with such characters is that file's.
  CHECK(find_text(folder.put("what?.txt", "x"), Split::train).layout == "one file");
}

TEST_CASE("what is no corpus says so, with the path and what to do") {
  const TempFolder folder;
  CHECK(contains(error_of(folder / "none"), "none: No such file or directory; data.path must be"));
  CHECK(contains(error_of(""), "data.path is empty"));
  fs::create_directory(folder / "empty");
  CHECK(contains(error_of(folder / "empty"), "has no file"));
  fs::create_symlink(folder / "gone", folder / "empty/link");
  CHECK(contains(error_of(folder / "empty"), "empty/link"));
}

TEST_CASE("find_splits names all that are there") {
  const TempFolder folder;
  put_all(folder, {"wiki.valid.tokens", "wiki.test.tokens"});
  const std::vector<TextSplit> found = find_splits(folder.path(), WikiTextForm::tokens);
  REQUIRE(found.size() == 2);
  CHECK(found[0].split == Split::validation);
  CHECK(found[1].split == Split::test);
  CHECK_THROWS_AS(find_splits(folder / "none", WikiTextForm::raw), IoError);
}
