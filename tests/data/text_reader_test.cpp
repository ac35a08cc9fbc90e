#include "data/text_reader.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "skip.h"
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

std::string read_all(const std::string& path, Removed* removed = nullptr) {
  TextReader reader(path);
  std::string text;
  for (std::string chunk; reader.read(chunk);) {
    CHECK_FALSE(chunk.empty());
    text += chunk;
  }
  if (removed != nullptr) *removed = reader.removed();
  return text;
}

std::string refusal(const std::string& path) {
  return message_of([&] { read_all(path); });
}

}  // namespace

TEST_CASE("a byte order mark and CRs before LF are removed and counted") {
  const TempFolder folder;
  Removed removed;
  CHECK(read_all(folder.put("a",
                            "\xEF\xBB\xBF"
                            "one\r\ntwo\r\r\nthree\rfour\r"),
                 &removed) == "one\ntwo\r\nthree\rfour\r");
  CHECK(removed.byte_order_marks == 1);
  CHECK(removed.carriage_returns == 2);
  CHECK(read_all(folder.put("b",
                            "\xEF\xBB\xBF\xEF\xBB\xBF"
                            "b")) ==
        "\xEF\xBB\xBF"
        "b");  // a second U+FEFF is text
  CHECK(read_all(folder.put("c", "\xEF\xBB")) == "\xEF\xBB");
  CHECK(read_all(folder.put("d", "")) == "");
}

TEST_CASE("cleaning in pieces is cleaning of the whole") {
  const std::string raw =
      "\xEF\xBB\xBF"
      "a\r\n\r\r\nb\r";
  for (std::size_t piece = 1; piece <= raw.size(); ++piece) {
    CAPTURE(piece);
    TextCleaner cleaner;
    std::string clean;
    for (std::size_t at = 0; at < raw.size(); at += piece)
      cleaner.add(std::string_view(raw).substr(at, piece), clean);
    cleaner.finish(clean);
    CHECK(clean == "a\n\r\nb\r");
    CHECK(cleaner.removed().carriage_returns == 2);
    CHECK(cleaner.removed().byte_order_marks == 1);
  }
}

TEST_CASE("gzip files are read through, by content and by name") {
  const TempFolder folder;
  CHECK(read_all(folder.put("x", gzip("\xEF\xBB\xBFone\r\n"))) == "one\n");
  CHECK(read_all(folder.put("x.txt.gz", gzip("one") + gzip("two"))) == "onetwo");
  CHECK(contains(refusal(folder.put("y.gz", "plain")), "is not a gzip file"));
  CHECK(contains(refusal(folder.put("t.gz", gzip("some text").substr(0, 20))), "is cut off"));
  std::string tar(1024, 'x');
  tar.replace(257, 5, "ustar");
  CHECK(contains(refusal(folder.put("a.tar.gz", gzip(tar))), "is a tar archive"));
}

TEST_CASE("chunks of a long file join without a seam") {
  std::string text;
  for (int i = 0; text.size() < (3 << 20); ++i)
    text += "line " + std::to_string(i) + (i % 3 == 0 ? "\r\n" : "\n");
  std::string clean = text;
  std::erase(clean, '\r');
  const TempFolder folder;
  CHECK(read_all(folder.put("x", text)) == clean);
  CHECK(read_all(folder.put("x.gz", gzip(text))) == clean);
}

TEST_CASE("what is not text says so, with the path and what to do") {
  const TempFolder folder;
  CHECK(contains(refusal(folder.put("u", "\xff\xfeh\x01")), "UTF-16"));
  CHECK(contains(refusal(folder.put("zip", "PK\x03\x04 rest")), "unzip"));
  CHECK(contains(refusal(folder.put("z", std::string("\0h\0i\0!", 6))),
                 "is not text (3 zero bytes, the first at byte 0)"));
  CHECK(
      contains(refusal(folder.put("w", std::string("text\xff then \0 a zero and more of it", 30))),
               "is not text"));
  CHECK(contains(refusal("/dev/null"), "not a regular file"));
}

TEST_CASE("a few zero bytes in UTF-8 text, and 8-bit encodings, are text") {
  const TempFolder folder;
  CHECK(read_all(folder.put("a", std::string("one\0two\0three", 13))).size() == 13);
  CHECK(read_all(folder.put("b", "caf\xe9")) == "caf\xe9");
}

TEST_CASE("the hostile texts are read or refused with an IoError (test data)") {
  const std::string root = test::test_data("hostile/text");
  if (root.empty()) FOVEA_SKIP("no hostile/text");
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    CAPTURE(name);
    const std::string message = refusal(path);
    const bool refused =
        name.starts_with("utf16") || name.starts_with("utf32") || name == "all_bytes.bin";
    if (refused) CHECK(message.starts_with(path + ": "));
    if (!refused && (name.ends_with(".txt") || name.ends_with(".gz")) &&
        !name.starts_with("utf8_invalid"))
      CHECK(message.empty());
  }
  const auto text = [&](const std::string& name) { return read_all(root + "/" + name); };
  CHECK(text("empty.txt").empty());
  CHECK(text("bom_only.txt").empty());
  CHECK(text("crlf.txt").find('\r') == std::string::npos);
  CHECK(text("cr_only.txt").find('\r') != std::string::npos);
  CHECK(text("long_line_1MiB.txt.gz").size() == 1 << 20);
  CHECK(text("million_newlines.txt.gz").size() == 1000000);
}

TEST_CASE("the hostile gzip files are refused as text too, for the reason (test data)") {
  const std::string root = test::test_data("hostile/containers/gzip");
  if (root.empty()) FOVEA_SKIP("no hostile/containers/gzip");
  for (const char* name : {"bad_crc", "not_gzip", "trailing_garbage", "truncated", "zero_bytes"}) {
    const std::string path = root + "/" + name + ".gz";
    CAPTURE(path);
    CHECK_THROWS_AS(read_all(path), IoError);
    CHECK(refusal(path).starts_with(path + ": "));
  }
  CHECK(read_all(root + "/empty_member.gz").empty());
  // 64 MiB of zeros are unpacked in pieces, and are no text.
  CHECK(contains(refusal(root + "/bomb_64MiB.gz"), "is not text"));
}
