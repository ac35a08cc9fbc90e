#include "data/json_records.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "skip.h"
#include "temp_folder.h"
#include "write_gzip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;
namespace fs = std::filesystem;

namespace {

using Texts = std::vector<std::string>;

Texts texts_of_file(const std::string& path, const std::string& field = "text") {
  JsonRecords records(path, field);
  Texts out;
  for (std::string text; records.next(text);)
    out.push_back(text);
  return out;
}

Texts texts(const std::string& bytes, const std::string& field = "text") {
  const TempFolder folder;
  return texts_of_file(folder.put("x.jsonl", bytes), field);
}

std::string refusal(const std::string& bytes, const std::string& field = "text") {
  return message_of([&] { texts(bytes, field); });
}

}  // namespace

TEST_CASE("a record's field is its text, whatever else the record has") {
  CHECK(
      texts(
          "{\"text\":\"one\"}\n{\"id\":{\"text\":\"no\"},\"list\":[{\"text\":1}],\"text\":\"two\"}"
          "\n\n  \n{\"text\":\"\"}") == Texts{"one", "two", ""});
  CHECK(texts("{\"text\":[\"a b\",\"c\",\"\"],\"z\":[]}") == Texts{"a b c "});
  CHECK(texts("{\"text\":[]}") == Texts{""});
  CHECK(texts(R"({"text":"\u00e9\n\ud83d\ude42\u0000"})") ==
        Texts{std::string("\xc3\xa9\n\xf0\x9f\x99\x82\0", 8)});
  CHECK(texts(R"({"body":"x","text":1})", "body") == Texts{"x"});
  CHECK(texts("").empty());
}

TEST_CASE("dots lead into nested objects") {
  const std::string record =
      R"({"en":"outer","translation":{"de":"zwei","en":"two","deep":{"en":"no"}},"x":{"en":"no"}})";
  CHECK(texts(record, "translation.en") == Texts{"two"});
  CHECK(texts(record, "translation.deep.en") == Texts{"no"});
  CHECK(contains(refusal(record, "translation.fr"), "has no field \"translation.fr\""));
  CHECK(contains(refusal(R"({"a":"x"})", "a.b"), "is a string, but must be an object"));
}

TEST_CASE("of two equal keys the last one counts") {
  CHECK(texts(R"({"text":"one","text":"two"})") == Texts{"two"});
}

TEST_CASE("texts are cleaned as files are") {
  const TempFolder folder;
  JsonRecords records(
      folder.put("x.jsonl", "\xEF\xBB\xBF{\"text\":\"\\ufeffone\\r\\ntwo\\r\"}\r\n"), "text");
  std::string text;
  REQUIRE(records.next(text));
  CHECK(text == "one\ntwo\r");
  CHECK(records.removed().byte_order_marks == 2);
  CHECK(records.removed().carriage_returns == 1);
  CHECK_FALSE(records.next(text));
}

TEST_CASE("packed records, and records across the borders of chunks") {
  std::string bytes;
  Texts expected;
  for (int i = 0; i < 3000; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i % 1700), 'a' + i % 26));
    bytes += "{\"text\":\"" + expected.back() + "\"}\n";
  }
  const TempFolder folder;
  CHECK(texts_of_file(folder.put("x.jsonl.gz", test::gzip(bytes))) == expected);
}

TEST_CASE("a record that is of no use is refused with line and byte") {
  CHECK(contains(refusal("{\"text\":\"one\"}\n{\"text\":\"two\",}\n"), ": line 2 (byte 29)"));
  CHECK(contains(refusal("{\"text\":\"one\"}\n{\"text\":\"two\",}\n"), "is not JSON"));
  CHECK(
      contains(refusal("{\"txt\":\"one\"}"), "line 1 (byte 0): the record has no field \"text\""));
  CHECK(contains(refusal("[{\"text\":\"one\"}]"), "is a list, but must be an object a line"));
  CHECK(contains(refusal("\"text\""), "is a string, but must be an object"));
  CHECK(contains(refusal("3"), "is a number, but must be an object"));
  CHECK(contains(refusal("{\"text\":3}"), "\"text\" is a number, but must be a string or a list"));
  CHECK(contains(refusal("{\"text\":null}"), "is null"));
  CHECK(contains(refusal("{\"text\":{}}"), "is an object"));
  CHECK(contains(refusal("{\"text\":[\"a\",1]}"), "has a number in its list"));
  CHECK(contains(refusal("{\"text\":[[]]}"), "has a list of lists in its list"));
  CHECK(contains(refusal("{\"text\":\"\xff\"}"), "is not JSON"));
  CHECK(refusal("{\"text\":\"\x1b[31m\"}").find('\x1b') == std::string::npos);
  CHECK(contains(refusal("{\"x\":" + std::string(1 << 20, '[')), "nests deeper than 256"));
}

TEST_CASE("names of JSON lines") {
  for (const char* name : {"a.jsonl", "a.json", "b/a.ndjson", "a.json.gz"})
    CHECK(is_json_lines_name(name));
  for (const char* name : {"a.txt", "a.jsonl.txt", "json", "a.gz"})
    CHECK_FALSE(is_json_lines_name(name));
}

TEST_CASE("the hostile JSON files end as EXPECTED.tsv says (test data)") {
  const std::string root = test::test_data("hostile/json");
  if (root.empty()) FOVEA_SKIP("no hostile/json");
  const TempFolder folder;
  int good = 0, bad = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    std::string value = read_file(entry.path().string());
    // As files of records: none of them has a text, and nothing crashes.
    const std::string message = message_of([&] { texts_of_file(entry.path().string()); });
    CHECK((message.empty() || message.starts_with(entry.path().string() + ": line ")));
    // As a field of a record that has one; records are lines.
    if (value.find('\n') != std::string::npos) continue;
    const std::string record = "{\"x\":" + value + ",\"text\":\"t\"}";
    if (name.starts_with("y_")) {
      CHECK(texts(record) == Texts{"t"});
      ++good;
    } else if (name.starts_with("n_") && !name.starts_with("n_structure") &&
               !name.starts_with("n_single")) {
      // The others are wrong only where nothing surrounds them.
      CHECK(contains(refusal(record), "line 1"));
      ++bad;
    }
  }
  CHECK(good > 70);
  CHECK(bad > 100);
}

TEST_CASE("a published corpus of records is read whole (test data)") {
  const std::string path = test::test_data("c4-en-mini/c4-validation.00000-of-00001.json.gz");
  if (path.empty()) FOVEA_SKIP("no c4-en-mini");
  CHECK(texts_of_file(path).size() == 200);
}
