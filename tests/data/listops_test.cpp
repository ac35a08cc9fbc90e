#include "data/listops.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/listops_expression.h"
#include "data/listops_files.h"
#include "data/loader.h"
#include "skip.h"
#include "temp_folder.h"
#include "write_gzip.h"

using namespace fovea;
using namespace fovea::data;
using namespace fovea::test;

namespace {

DataConfig generated() {
  DataConfig config;
  config.kind = "listops";
  config.listops = {.train_examples = 30,
                    .validation_examples = 20,
                    .test_examples = 10,
                    .min_length = 5,
                    .max_length = 40,
                    .max_depth = 4,
                    .max_args = 4};
  return config;
}

DataConfig files(const std::string& path) {
  DataConfig config;
  config.kind = "listops";
  config.path = path;
  return config;
}

Example example_of(const Source& source, std::int64_t i) {
  Example example;
  source.get(i, 0, example);
  return example;
}

// What opening the validation split says of this file.
std::string refused(const std::string& path) {
  const auto open = [&] { make_source(files(path), 64, Split::validation, 0); };
  CHECK_THROWS_AS(open(), IoError);
  return message_of(open);
}

}  // namespace

TEST_CASE("listops: written files hold the examples that generating gives, split by split") {
  const TempFolder folder;
  const DataConfig config = generated();
  listops::make_files(config.listops, 5, 2, folder / "made");
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    const auto direct = make_source(config, 64, split, 5),
               read = make_source(files(folder / "made"), 64, split, 9);
    REQUIRE(direct->size() == read->size());
    for (std::int64_t i = 0; i < direct->size(); ++i) {
      const Example a = example_of(*direct, i), b = example_of(*read, i);
      CHECK(a.tokens == b.tokens);
      CHECK(a.targets == b.targets);
    }
    CHECK(direct->guesses(5)[0].correct == read->guesses(5)[0].correct);
    CHECK(direct->guesses(100)[1].correct == read->guesses(100)[1].correct);
  }
  CHECK(read_file(folder / "made/basic_val.tsv").starts_with("Source\tTarget\r\n( "));
  CHECK_THROWS_WITH_AS(listops::make_files(config.listops, 5, 1, folder / "made"),
                       doctest::Contains("exists already"), IoError);
  const std::string before = read_file(folder / "made/basic_train.tsv");
  listops::make_files(config.listops, 5, 1, folder / "made", Existing::replace);
  CHECK(read_file(folder / "made/basic_train.tsv") == before);
  listops::make_files(config.listops, 6, 1, folder / "made", Existing::replace);
  CHECK(read_file(folder / "made/basic_train.tsv") != before);
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "made"), {}) == 3);
}

TEST_CASE("listops: splits share no expression, and each is itself whatever the sizes behind it") {
  DataConfig config = generated();
  const auto train = make_source(config, 64, Split::train, 5),
             validation = make_source(config, 64, Split::validation, 5),
             test = make_source(config, 64, Split::test, 5);
  for (std::int64_t i = 0; i < 30; ++i) {
    for (std::int64_t j = 0; j < 20; ++j)
      CHECK(example_of(*train, i).tokens != example_of(*validation, j).tokens);
    for (std::int64_t j = 0; j < 10; ++j)
      CHECK(example_of(*train, i).tokens != example_of(*test, j).tokens);
  }
  config.listops.test_examples = 50;
  CHECK(example_of(*make_source(config, 64, Split::validation, 5), 7).tokens ==
        example_of(*validation, 7).tokens);
  CHECK(example_of(*make_source(config, 64, Split::validation, 6), 7).tokens !=
        example_of(*validation, 7).tokens);
}

TEST_CASE("listops: answers that need no model are counted over the examples that are scored") {
  const TempFolder folder;
  const std::string path = folder.put("a.tsv",
                                      "[MIN 0 1 ]\t0\n[MAX 9 1 ]\t9\n[MED 4 ]\t4\n[SM 5 5 ]\t0\n"
                                      "[MAX 0 0 ]\t0\n3\t3\n");
  DataConfig config = files(path);
  config.val_fraction = 1;
  const auto source = make_source(config, 64, Split::validation, 0);
  const auto all = source->guesses(6), two = source->guesses(2);
  CHECK(all[0].name == "always_0");
  CHECK(all[0].correct == 3);
  CHECK(all[1].name == "first_token");
  CHECK(all[1].correct == 5);
  CHECK(two[0].correct == 1);
  CHECK(two[1].correct == 2);
}

TEST_CASE("listops: the benchmark's folder and the original's file are read as they lie") {
  const std::string lra = test_data("lra-listops"), nyu = test_data("nyu-listops/test_d20s.tsv.gz");
  if (lra.empty() || nyu.empty()) FOVEA_SKIP("no lra-listops or nyu-listops among the test data");
  CHECK(make_source(files(lra), 2000, Split::train, 0)->size() == 600);
  CHECK(make_source(files(lra), 2000, Split::validation, 0)->size() == 100);
  CHECK(make_source(files(lra), 2000, Split::test, 0)->size() == 100);
  const auto train = make_source(files(nyu), 64, Split::train, 0),
             held_out = make_source(files(nyu), 64, Split::validation, 0);
  CHECK(train->size() == 9000);
  CHECK(held_out->size() == 1000);
  CHECK(contains(train->summary(), "are cut at 64"));
  CHECK_THROWS_AS(make_source(files(nyu), 64, Split::test, 0), IoError);
  DataConfig whole = files(nyu);
  whole.val_fraction = 1;
  CHECK(make_source(whole, 64, Split::validation, 0)->size() == 10000);
  CHECK_THROWS_WITH_AS(make_source(whole, 64, Split::train, 0),
                       doctest::Contains("leave the train split none"), IoError);
}

TEST_CASE("listops: a release's folders are found from above, and what is missing is listed") {
  const TempFolder folder;
  const std::string row = "Source\tTarget\r\n( ( ( [MAX 1 ) 2 ) ] )\t2\r\n";
  folder.put("lra_release/lra_release/listops-1000/basic_val.tsv", row);
  folder.put("lra_release/lra_release/listops-1000/basic_train.tsv.gz", gzip(row));
  for (const char* from :
       {".", "lra_release", "lra_release/lra_release", "lra_release/lra_release/listops-1000"}) {
    CHECK(make_source(files(folder / from), 64, Split::validation, 0)->size() == 1);
    CHECK(make_source(files(folder / from), 64, Split::train, 0)->size() == 1);
  }
  const std::string error =
      message_of([&] { make_source(files(folder.path()), 64, Split::test, 0); });
  CHECK(contains(error, "has no test split of ListOps: looked for basic_test.tsv and .tsv.gz"));
  CHECK(contains(error, "there is lra_release/lra_release/listops-1000/basic_train.tsv.gz, "));
  CHECK_THROWS_WITH_AS(make_source(files(folder / "none"), 64, Split::test, 0),
                       doctest::Contains("there is no such file or folder"), IoError);
}

TEST_CASE("listops: header, line ends, quotes and a byte order mark may be there or not") {
  const TempFolder folder;
  const std::string plain = "[MAX 1 2 ]\t2\n[MIN 1 2 ]\t1\n";
  for (const std::string& text :
       {plain, "Source\tTarget\n" + plain,
        std::string("\xEF\xBB\xBFSource\tTarget\r\n[MAX 1 2 ]\t2\r\n[MIN 1 2 ]\t1"),
        std::string("\"Source\"\t\"Target\"\n\"[MAX 1 2 ]\"\t\"2\"\n\n\"[MIN 1 2 ]\"\t1\n"),
        std::string("2\t( ( ( [MAX 1 ) 2 ) ] )\n1\t[MIN 1 2 ]\n")}) {
    const listops::Table table = listops::read_table(folder.put("t.tsv", text));
    REQUIRE(table.size() == 2);
    CHECK(table.values == std::vector<std::uint8_t>{2, 1});
    CHECK(table.tokens == std::vector<std::uint8_t>{2, 7, 8, 5, 1, 7, 8, 5});
  }
}

TEST_CASE("listops: broken tables are refused with file, line and reason") {
  const TempFolder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.put("t.tsv", text);
    const std::string what = refused(path);
    CHECK(what.starts_with(path + ":"));
    return what.substr(path.size());
  };
  const std::string head = "Source\tTarget\r\n";
  CHECK(error(head + "[MAX 1 2 ]\tten\r\n") ==
        ":2: the label is \"ten\", but must be a digit, 0 to 9");
  CHECK(error(head + "[MAX 1 2 ]\t10\r\n") ==
        ":2: the label is \"10\", but must be a digit, 0 to 9");
  CHECK(error(head + "[MAX 1 2 ] 2\r\n") ==
        ":2: there is no tab between an expression and its label");
  CHECK(error("( ( [MAX 1 ) 2 ) ] )\t2\n") == ":1: a ')' behind token 4 closes no '('");
  CHECK(
      error(head + "[MAX 1 2 ]\t2\r\n[MAX 1 2 ]\t1\r\n") ==
      ":3: the label is 1, but the expression's value is 2: the file is damaged or of other rules");
  CHECK(contains(error(head + "[MAX 1 2\t2\r\n"), "']' is missing"));
  CHECK(contains(error(head + "[MAX 1 2 ]\t2\t3\r\n"), "more than two fields"));
  CHECK(error(head) == ": holds no example");
  CHECK(error("") == ": holds no example");
  CHECK(contains(error(std::string((std::size_t{17} << 20), '1')), "more than 16777216 bytes"));
}

TEST_CASE("listops: the hostile tables are refused") {
  for (const char* name : {"bad_label", "label_out_of_range", "missing_tab", "no_header"}) {
    const std::string path = test_data(std::string("hostile/tsv/listops_") + name + ".tsv");
    if (path.empty()) FOVEA_SKIP("no hostile tables among the test data");
    CHECK(contains(refused(path), path + ":"));
    CHECK(listops::looks_like_table(path));
  }
}

TEST_CASE("labelled batches have one target a row and say which tokens are the row's") {
  const TempFolder folder;
  DataConfig config = files(folder.put("t.tsv", "[MAX 1 2 3 ]\t3\n[MIN 1 2 ]\t1\n4\t4\n"));
  config.val_fraction = 1;
  const auto source = make_source(config, 5, Split::validation, 0);
  const EvalLoader loader(*source, 4);
  const Batch batch = loader.at(0);
  CHECK(batch.classes == 10);
  CHECK(batch.target_tokens == 3);
  CHECK(batch.targets.shape() == Shape{4, 1});
  CHECK(batch.targets.values() == std::vector<double>{3, 1, 4, -1});
  CHECK(batch.tokens.values() ==
        std::vector<double>{2, 7, 8, 9, 5, 1, 7, 8, 5, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.key_valid.values() ==
        std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a CLS token of an id of its own begins every example, and counts among the tokens") {
  const TempFolder folder;
  DataConfig config = files(folder.put("t.tsv", "[MAX 1 2 3 ]\t3\n4\t4\n"));
  config.val_fraction = 1;
  CHECK(vocab_size(config) == 16);
  config.cls = true;
  CHECK(vocab_size(config) == 17);
  const auto source = make_source(config, 4, Split::validation, 0);
  CHECK(source->seq_len() == 4);
  CHECK(example_of(*source, 0).tokens == std::vector<std::int32_t>{16, 2, 7, 8});
  CHECK(example_of(*source, 0).targets == std::vector<std::int32_t>{3});
  CHECK(example_of(*source, 1).tokens == std::vector<std::int32_t>{16, 10});
  CHECK_THROWS_AS(make_source(config, 1, Split::validation, 0), ConfigError);
}

TEST_CASE("a fingerprint changes with a token or a label, and with nothing else") {
  const TempFolder folder;
  const auto print = [&](const std::string& text) {
    DataConfig config = files(folder.put("t.tsv", text));
    config.val_fraction = 0;
    return make_source(config, 64, Split::train, 0)->fingerprint();
  };
  const std::string a = print("[MAX 1 2 ]\t2\n");
  CHECK(print("Source\tTarget\r\n( ( ( [MAX 1 ) 2 ) ] )\t2\r\n") == a);
  CHECK(print("[MAX 2 1 ]\t2\n") != a);
  CHECK(print("[MAX 1 2 ]\t2\n3\t3\n") != a);
}
