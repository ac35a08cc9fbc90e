#include "data/listops_expression.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/listops_files.h"
#include "data/text_reader.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using namespace fovea::test;

namespace {

int value_of(std::string_view text) {
  listops::Expression tree;
  return listops::parse(text, tree);
}
std::string error_of(std::string_view text) {
  CHECK_THROWS_AS(value_of(text), IoError);
  return message_of([&] { value_of(text); });
}

}  // namespace

TEST_CASE("listops: the worked examples have their values") {
  CHECK(value_of("[MED 1 2 ]") == 1);
  CHECK(value_of("[MED 3 8 4 ]") == 4);
  CHECK(value_of("[SM 7 8 9 ]") == 4);
  CHECK(value_of("( ( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 0 ) ] )") == 9);
  CHECK(value_of("[MIN 3 8 4 ]") == 3);
  CHECK(value_of("[MED 9 0 9 0 ]") == 4);
  CHECK(value_of("[MED 5 ]") == 5);
  CHECK(value_of("7") == 7);
}

TEST_CASE("listops: round brackets are dropped, and written as the benchmark writes them") {
  const std::string text = "( ( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 0 ) ] )";
  listops::Expression tree, plain;
  listops::parse(text, tree);
  CHECK(listops::tokens_text(tree) == "[MAX 2 9 [MIN 4 7 ] 0 ]");
  CHECK(tree == listops::Expression{2, 8, 15, 1, 10, 13, 5, 6, 5});
  CHECK(listops::bracketed_text(tree) == text);
  listops::parse("[MAX 2 9 [MIN 4 7 ] 0 ]", plain);
  CHECK(plain == tree);
  CHECK(listops::bracketed_text(listops::Expression{listops::kDigit + 3}) == "3");
}

TEST_CASE("listops: what is no expression is refused by its token") {
  CHECK(error_of("[MAX 2 x ]") ==
        "token 3 is \"x\", but must be a digit, [MIN, [MAX, [MED, [SM or ]");
  CHECK(error_of("[MAX 2 10 ]") ==
        "token 3 is \"10\", but must be a digit, [MIN, [MAX, [MED, [SM or ]");
  CHECK(error_of("[MAX 2 3") ==
        "the expression ends with 1 list still open: ']' is missing (an early release of Long "
        "Range Arena lost it)");
  CHECK(error_of("[MAX 2 ] 3") == "token 4 stands behind the end of the expression");
  CHECK(error_of("2 ]") == "token 2 stands behind the end of the expression");
  CHECK(error_of("] 2") == "token 1 is ']', but no list is open");
  CHECK(error_of("[MAX ]") == "token 2 closes a list without arguments");
  CHECK(error_of("( ( [MAX 1 ) 2 ) ] )") == "a ')' behind token 4 closes no '('");
  CHECK(error_of("( [MAX 1 2 ]") == "1 '(' without ')'");
  CHECK(error_of("  ") == "the expression is empty");
  CHECK(contains(error_of("[MAX \x1b[31m ]"), "\\x1b"));
}

TEST_CASE("listops: no nesting is too deep, no list too long") {
  std::string deep, wide = "[SM";
  for (int i = 0; i < 1000000; ++i) {
    deep += "[MAX ";
    wide += " 1";
  }
  CHECK(contains(error_of(deep), "ends with 1000000 lists still open"));
  deep += "7";
  for (int i = 0; i < 1000000; ++i)
    deep += " ]";
  CHECK(value_of(deep) == 7);
  CHECK(value_of(wide + " ]") == 0);
}

TEST_CASE("listops: every published answer is ours, and every line is written as it was read") {
  int lines = 0;
  for (const char* name : {"lra-listops/basic_train.tsv.gz", "lra-listops/basic_val.tsv.gz",
                           "lra-listops/basic_test.tsv.gz"}) {
    const std::string path = test_data(name);
    if (path.empty()) FOVEA_SKIP("no lra-listops among the test data");
    const listops::Table table = listops::read_table(path);  // compares every label with the value
    std::string text(std::size_t{8} << 20, '\0'), ours = "Source\tTarget\r\n";
    text.resize(ByteReader(path).read(text.data(), text.size()));
    for (std::int64_t i = 0, begin = 0; i < table.size(); ++i) {
      const auto end = static_cast<std::int64_t>(table.ends[static_cast<std::size_t>(i)]);
      const listops::Expression tree(table.tokens.begin() + begin, table.tokens.begin() + end);
      ours += listops::bracketed_text(tree) + "\t" +
              std::to_string(table.values[static_cast<std::size_t>(i)]) + "\r\n";
      begin = end;
      ++lines;
    }
    CHECK(ours == text);
  }
  CHECK(lines == 800);
  const std::string original = test_data("nyu-listops/test_d20s.tsv.gz");
  if (original.empty()) FOVEA_SKIP("no nyu-listops among the test data");
  CHECK(listops::read_table(original).size() == 10000);
}
