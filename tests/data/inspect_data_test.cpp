#include "data/inspect_data.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/prepare.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

TEST_CASE("prepared data is summed up, sampled and checked block by block") {
  const TempFolder folder, out;
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += "line " + std::to_string(i) + " of \x1b[31m text\r\n";
  PrepareOptions options;
  options.source = folder.put("x.txt", text);
  options.out = out / "x";
  prepare(options);
  const auto reports = inspect_data(out / "x", 3);
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].name == "train");
  CHECK(reports[0].counts.lines + reports[1].counts.lines == 40000);
  REQUIRE(reports[0].samples.size() == 3);
  CHECK(reports[0].samples[0].text.starts_with("line 0 of \x1b[31m text\nline 1"));
  CHECK(reports[0].samples[2].first == reports[0].tokens - 64);
  const std::string shown = text_of(reports);
  CHECK(shown.find('\x1b') == std::string::npos);
  CHECK(contains(shown, " CR before LF"));
  for (const DataSplitReport& report : reports)
    CHECK(report.removed.carriage_returns == report.counts.lines);
  CHECK(contains(shown, "one file, 0.1 of every document held out"));
  CHECK(inspect_data(out / "x/train", 0).size() == 1);
  std::string bytes = read_file(out / "x/train/tokens.bin");
  bytes[bytes.size() - 9] ^= 1;
  write_file_synced(out / "x/train/tokens.bin", bytes);
  CHECK(contains(message_of([&] { inspect_data(out / "x", 0); }), "is damaged between bytes"));
}

TEST_CASE("token files and texts are summed up too") {
  const TempFolder folder;
  folder.put("train.bin", std::string(200, '\1'));
  folder.put("val.bin", std::string(20, '\1'));
  const auto files = inspect_data(folder.path(), 2);
  REQUIRE(files.size() == 2);
  CHECK(files[0].tokens == 100);
  CHECK(files[0].format == "headerless");
  CHECK(files[1].samples[0].ids == std::vector<std::int32_t>(10, 257));
  const TempFolder texts;
  texts.put("train/a.txt", "one two\n");
  texts.put("test/b.txt", "three\n");
  const auto reports = inspect_data(texts.path(), 2);
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].counts.words == 2);
  CHECK(reports[1].name == "test");
  CHECK(contains(text_of(reports), "1 documents, 1 lines, 2 words, 8 characters, 8 clean bytes"));
  CHECK(inspect_data(texts / "train/a.txt", 0)[0].name == "all");
  CHECK_THROWS_AS(inspect_data(texts / "none", 0), IoError);
}
