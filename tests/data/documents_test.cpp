#include "data/documents.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "temp_folder.h"
#include "write_gzip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::gzip;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Texts = std::vector<std::string>;

class Collect final : public TextSink {
 public:
  void text(std::string_view piece) override {
    CHECK_FALSE(piece.empty());
    open_ += piece;
  }
  void end_document() override {
    texts.push_back(open_);
    open_.clear();
  }
  Texts texts;

 private:
  std::string open_;
};

Texts documents(const std::string& source, Split split, double val_fraction) {
  Collect sink;
  read_documents(find_text(source, split), {"text", val_fraction}, sink);
  return sink.texts;
}

}  // namespace

TEST_CASE("a file is a document, and a record is one; order and text are the same") {
  const TempFolder files, records, packed;
  files.put("1.txt", "one\r\n");
  files.put("2.txt", "");
  files.put("3.txt", "\xEF\xBB\xBFthree");
  records.put("all.jsonl",
              "{\"text\":\"one\\r\\n\"}\n{\"text\":\"\"}\n{\"text\":\"\\ufeffthree\"}\n");
  packed.put("1.gz", gzip("one\r\n"));
  packed.put("2.jsonl.gz", gzip("{\"text\":\"\"}\n"));
  packed.put("3", gzip("three"));
  const Texts expected = {"one\n", "", "three"};
  for (const TempFolder* folder : {&files, &records, &packed})
    CHECK(documents(folder->path(), Split::train, 0) == expected);
}

TEST_CASE("the tail of every document is held out, whole lines where there are some") {
  const TempFolder folder;
  folder.put("a", "0123456789");
  folder.put("b", "abc");
  folder.put("c", "ABCDEFGHIJKLMN\nOPQRS");
  folder.put("d", "ABC\nEFGHIJ\nLMNOPQRST");
  CHECK(documents(folder.path(), Split::train, 0.25) ==
        Texts{"01234567", "abc", "ABCDEFGHIJKLMN\n", "ABC\nEFGHIJ\nLMNO"});
  CHECK(documents(folder.path(), Split::validation, 0.25) == Texts{"89", "OPQRS", "PQRST"});
  CHECK(documents(folder.path(), Split::validation, 0).empty());
  CHECK(documents(folder.path(), Split::train, 1).empty());
  CHECK(documents(folder.path(), Split::validation, 1) ==
        documents(folder.path(), Split::train, 0));
  CHECK_THROWS_AS(documents(folder.path(), Split::train, 1.5), ConfigError);
}

TEST_CASE("a held-out part begins with a line if one begins soon, else with a character") {
  const TempFolder folder;
  folder.put("a", "0123456\n89\nA\n");
  CHECK(documents(folder.path(), Split::validation, 0.6) == Texts{"89\nA\n"});
  folder.put("a",
             "01234\xf0\x9f\x99\x82"
             "9");
  CHECK(documents(folder.path(), Split::train, 0.4) == Texts{"01234\xf0\x9f\x99\x82"});
  CHECK(documents(folder.path(), Split::validation, 0.4) == Texts{"9"});
  folder.put("a", "0\n2\n");
  CHECK(documents(folder.path(), Split::validation, 0.5) == Texts{"2\n"});
}

TEST_CASE("both parts are the whole, however long the lines and the files") {
  const TempFolder folder;
  for (const std::size_t line : {7u, 5000u, 70000u, 900000u}) {
    std::string text;
    while (text.size() < 3'300'000)
      text += std::string(line, 'x') + "\xc3\xa9\n";
    folder.put("a", text);
    for (const double fraction : {0.01, 0.5, 0.9}) {
      CAPTURE(line);
      CAPTURE(fraction);
      const Texts train = documents(folder.path(), Split::train, fraction);
      const Texts held_out = documents(folder.path(), Split::validation, fraction);
      REQUIRE(train.size() == 1);
      REQUIRE(held_out.size() == 1);
      CHECK(train[0] + held_out[0] == text);
      const double share =
          static_cast<double>(held_out[0].size()) / static_cast<double>(text.size());
      CHECK(share <= fraction);
      CHECK(share >= fraction - 0.02);
      CHECK((static_cast<unsigned char>(held_out[0][0]) & 0xC0) != 0x80);
      if (line < 65000) CHECK(train[0].back() == '\n');
    }
  }
}

TEST_CASE("splits of their own are read whole, whatever the fraction") {
  const TempFolder folder;
  folder.put("train/1", "train");
  folder.put("validation/2", "held out");
  CHECK(documents(folder.path(), Split::train, 0.5) == Texts{"train"});
  CHECK(documents(folder.path(), Split::validation, 0.5) == Texts{"held out"});
}

TEST_CASE("an error names the file") {
  const TempFolder folder;
  folder.put("a.txt", "fine");
  folder.put("b.jsonl", "{");
  const std::string message = message_of([&] { documents(folder.path(), Split::train, 0); });
  CHECK(message.starts_with(folder / "b.jsonl" + ": line 1"));
}

TEST_CASE("what was removed is counted in the split that it was in") {
  const TempFolder files, records;
  files.put("a",
            "\xEF\xBB\xBF"
            "one\r\ntwo\r\nthree\r\nfour\r\n");
  files.put("b", std::string(3 << 20, 'x') + "\r\ny\rz\r\n");
  records.put("a.jsonl", "\xEF\xBB\xBF{\"text\":\"one\\r\\ntwo\\r\\nthree\\r\\n\"}\n");
  const auto removed = [](const TempFolder& folder, Split split, double fraction) {
    Collect sink;
    const Removed r = read_documents(find_text(folder.path(), split), {"text", fraction}, sink);
    return std::pair(r.byte_order_marks, r.carriage_returns);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  CHECK(removed(files, Split::train, 0) == Pair{1, 6});
  CHECK(removed(files, Split::validation, 1) == Pair{1, 6});
  CHECK(removed(files, Split::train, 0.4) == Pair{1, 3});
  CHECK(removed(files, Split::validation, 0.4) == Pair{0, 1 + 2});
  CHECK(removed(records, Split::train, 0.4) == Pair{1, 2});
  CHECK(removed(records, Split::validation, 0.4) == Pair{0, 1});
}
