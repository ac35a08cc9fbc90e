// fovea tokenize, as a user calls it.

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "core/file.h"
#include "data/temp_folder.h"
#include "process.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;

namespace {

std::string all_bytes() {
  std::string out;
  for (int i = 0; i < 3 * 256; ++i)
    out += static_cast<char>(i % 2 == 0 ? i / 2 : i * 31);
  return out;
}

// A shell pipeline; $F is the binary.
Finished shell(const std::string& command) {
  return run_program({"bash", "-o", "pipefail", "-c", "F=" FOVEA_BINARY "; " + command});
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("a file's ids are one line, and every line is a text when asked for") {
    const TempFolder folder;
    const std::string file = folder.put("a", "ab\n\nc");
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", file}).out == "97 98 10 10 99\n");
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", file, file}).out ==
          "97 98 10 10 99\n97 98 10 10 99\n");
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", "--lines", file}).out == "97 98\n\n99\n");
    CHECK(shell("printf 'hi' | $F tokenize --tokenizer byte").out == "104 105\n");
    CHECK(shell("printf 'hi' | $F tokenize --tokenizer byte " + file + " -").out ==
          "97 98 10 10 99\n104 105\n");
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", "--pieces", file}).out ==
          "\"a\" \"b\" \"\\x0a\" \"\\x0a\" \"c\"\n");
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", "--count", file}).out ==
          "5 tokens, 5 bytes, 1 bytes a token\n");
    CHECK(run_fovea({"tokenize", "--tokenizer", "word", "--vocab-from", file, file}).out ==
          "1 0 0 2 0\n");
  }

  TEST_CASE("ids go back to the very bytes") {
    const TempFolder folder;
    const std::string bytes = all_bytes(), file = folder.put("bytes", bytes);
    std::vector<std::string> tokenizers = {"byte"};
    for (const char* name : {"gpt2-bpe", "models/stories260K/tok512.bin"})
      if (!test_data(name).empty()) tokenizers.push_back(test_data(name));
    for (const std::string& tokenizer : tokenizers) {
      const std::string call = "$F tokenize --tokenizer " + tokenizer;
      CHECK(shell(call + " " + file + " | " + call + " --decode").out == bytes);
    }
    const std::string lines = folder.put("lines", "one\n\ntwo words\n");
    const std::string call = "$F tokenize --lines --tokenizer " + tokenizers.back();
    CHECK(shell(call + " " + lines + " | " + call + " --decode").out == "one\n\ntwo words\n");
  }

  TEST_CASE("long texts stream, and the ids are those of the whole") {
    const std::string folder = test_data("gpt2-bpe");
    if (folder.empty()) FOVEA_SKIP("no gpt2-bpe data");
    const TempFolder temp;
    std::string text;
    for (int i = 0; text.size() < 1'500'000; ++i)
      text += "word" + std::to_string(i * 7919) + (i % 9 == 0 ? "\n\n" : " ") + "it's ";
    const std::string file = temp.put("long", text), ids = temp / "ids";
    const std::string call = "$F tokenize --tokenizer " + folder;
    CHECK(shell(call + " " + file + " --output " + ids).code == 0);
    CHECK(shell(call + " --decode " + ids).out == text);
    CHECK(shell("cat " + file + " | " + call).out == read_file(ids));
  }

  TEST_CASE("the JSON record sums up, and ids go to the output file only") {
    const TempFolder folder;
    const std::string file = folder.put("a", "\xEF\xBB\xBFhi\r\n"), ids = folder / "ids";
    const Finished run =
        run_fovea({"tokenize", "--tokenizer", "byte", "--clean", "--json", "--output", ids, file});
    const auto record = nlohmann::json::parse(run.out);
    CHECK(record.at("tokens") == 3);
    CHECK(record.at("bytes") == 3);
    CHECK(record.at("bytes_per_token") == 1);
    CHECK(record.at("vocab_size") == 256);
    CHECK(record.at("tokenizer_fingerprint").get<std::string>().size() == 16);
    CHECK(read_file(ids) == "104 105 10\n");
  }

  TEST_CASE("what is no token id is refused with its place, and leaves no file") {
    const TempFolder folder;
    const std::string out = folder / "out";
    const auto decoded = [&](const std::string& ids) {
      const std::string file = folder.put("ids", ids);
      const Finished run =
          run_fovea({"tokenize", "--tokenizer", "byte", "--decode", "--output", out, file});
      CHECK(run.code == 3);
      CHECK_FALSE(std::filesystem::exists(out));
      return run.err.substr(run.err.find(file) + file.size());
    };
    CHECK(decoded("1 2\n3 x4\n") == ":2: \"x4\" is no token id\n");
    CHECK(decoded("1.5") == ":1: \"1.5\" is no token id\n");
    CHECK(decoded("256") == ":1: token id 256 is outside the byte vocabulary [0, 256)\n");
    CHECK(decoded("\n\n-1") == ":3: token id -1 is outside the byte vocabulary [0, 256)\n");
    CHECK(decoded("99999999999999999999") ==
          ":1: token id 99999999999999999999 is outside the byte vocabulary [0, 256)\n");
    CHECK(decoded("\x1B[31m") == ":1: \"\\x1b[31m\" is no token id\n");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  }

  TEST_CASE("a link to the output stays, and no pipe is replaced") {
    const TempFolder folder;
    const std::string file = folder.put("a", "hi"), old = folder.put("old", "old");
    std::filesystem::create_symlink("old", folder / "link");
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    const auto written = [&](const std::string& name) {
      return run_fovea({"tokenize", "--tokenizer", "byte", file, "--output", folder / name}).code;
    };
    CHECK(written("link") == 0);
    CHECK(std::filesystem::is_symlink(folder / "link"));
    CHECK(read_file(old) == "104 105\n");
    CHECK(written("pipe") == 3);
    CHECK(std::filesystem::is_fifo(folder / "pipe"));
  }

  TEST_CASE("a text that the vocabulary cannot express is named") {
    const TempFolder folder;
    const std::string vocab = folder.put("v", "abc"), file = folder.put("a", "abd");
    const Finished run =
        run_fovea({"tokenize", "--tokenizer", "char", "--vocab-from", vocab, file});
    CHECK(run.code == 3);
    CHECK(contains(run.err, "error: " + file + ": "));
  }

  TEST_CASE("a reader who goes away ends the call quietly") {
    const Finished run = shell(
        "yes 'some text' | head -c 20000000 | $F tokenize --tokenizer byte | head -c 10; "
        "s=${PIPESTATUS[2]}; echo; echo $s");
    CHECK(run.out == "115 111 10\n0\n");
    CHECK_FALSE(contains(run.err, "error"));
  }

  TEST_CASE("an option that ends in = has no value, and takes none from what follows") {
    const TempFolder folder;
    const std::string keep = folder.put("keep", "text"), other = folder / "--output=";
    for (const char* option : {"--output=", "--decode="}) {
      const Finished run = run_fovea({"tokenize", "--tokenizer", "byte", option, keep});
      CHECK(run.code == 2);
      CHECK(contains(run.err, std::string("fovea tokenize: ") + option + " has no value"));
    }
    CHECK(read_file(keep) == "text");
    // As a value, or behind --, it is an argument like any other.
    CHECK(shell("cd " + folder.path() + " && $F tokenize keep --tokenizer byte --output --output=")
              .code == 0);
    CHECK(read_file(other) == "116 101 120 116\n");
    CHECK(shell("cd " + folder.path() + " && $F tokenize --tokenizer byte --count -- --output=")
              .code == 0);
  }

  TEST_CASE("usage mistakes are exit code 2, missing files 3") {
    const TempFolder folder;
    const std::string file = folder.put("a", "text");
    using Call = std::vector<std::string>;
    for (const Call& rest :
         {Call{}, Call{"--tokenizer", "word"}, Call{"--tokenizer", "byte", "--vocab-from", file},
          Call{"--tokenizer", "byte", "--decode", "--pieces"},
          Call{"--tokenizer", "byte", "--count", "--pieces"},
          Call{"--tokenizer", "byte", "--piece"}}) {
      Call call{"tokenize", file};
      call.insert(call.end(), rest.begin(), rest.end());
      const Finished run = run_fovea(call);
      CHECK(run.code == 2);
      CHECK(contains(run.err, "error: fovea tokenize: "));
    }
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", folder / "none"}).code == 3);
    CHECK(run_fovea({"tokenize", "--tokenizer", "byte", folder.path()}).code == 3);
    CHECK(run_fovea({"tokenize", "--tokenizer", folder / "none", file}).code == 3);
    CHECK(run_fovea({"tokenize", "--tokenizer", file, file}).code == 3);
  }
}
