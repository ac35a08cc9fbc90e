#include "config/yaml.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "config/message.h"

using namespace fovea::config;
using fovea::test::message;

namespace {

std::string refusal(const std::string& text) {
  return message([&] { parse(text, "a.yaml"); });
}

}  // namespace

TEST_SUITE("config yaml") {
  TEST_CASE("a byte order mark and CRLF change nothing") {
    CHECK(parse("\xEF\xBB\xBFlr: 0.1\r\nsteps: 5\r\n", "a.yaml").json() ==
          R"({"lr": 0.1, "steps": 5})");
    CHECK(parse("\xEF\xBB\xBFlr: 0.1\r\nsteps: 5\r\n", "a.yaml").find("steps")->place().str() ==
          "a.yaml:2:8");
  }

  TEST_CASE("an empty text and one of comments are null") {
    CHECK(parse("", "a.yaml").is_null());
    CHECK(parse("# nothing\n\n", "a.yaml").is_null());
    CHECK(parse("---\n...\n", "a.yaml").is_null());
  }

  TEST_CASE("aliases stand for copies") {
    CHECK(parse("a: &x {k: 1}\nb: *x\nc: [*x, *x]\n", "a.yaml").json() ==
          R"({"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]})");
    CHECK(refusal("b: *x\n") == "a.yaml:1:4: the referenced anchor is not defined");
    CHECK(refusal("a: &x [*x]\n") == "a.yaml:1:8: an alias inside the value that it names");
  }

  TEST_CASE("a key given twice is refused, where it stands") {
    CHECK(refusal("lr: 0.1\nlr: 0.2\n") == "a.yaml:2:1: key 'lr' is given twice, first in line 1");
    CHECK(refusal("m: {a: 1, \"a\": 2}\n") ==
          "a.yaml:1:11: key 'a' is given twice, first in line 1");
  }

  TEST_CASE("keys that are no text, tags, directives and further documents are refused") {
    CHECK(refusal("? [a]\n: b\n") == "a.yaml:1:3: a key must be text, not a list or a map");
    CHECK(refusal("{~: b}\n") == "a.yaml:1:2: a key must be text, but is empty");
    CHECK(refusal("a: !!int 3\n") == "a.yaml:1:4: tags are not supported: tag:yaml.org,2002:int");
    CHECK(refusal("a: !x {b: 1}\n") == "a.yaml:1:4: tags are not supported: !x");
    CHECK(refusal("%YAML 1.2\n---\na: 1\n") == "a.yaml:1:1: directives (%) are not supported");
    CHECK(refusal("a: 1\n---\nb: 2\n") ==
          "a.yaml:2:1: a second document, or text that belongs to nothing, begins here");
  }

  TEST_CASE("slips of the pen get a message that says what to do") {
    CHECK(refusal("model:\n\tdim: 64\n") == "a.yaml:2:1: a tab in the indentation; use spaces");
    CHECK(refusal("a: 1\nlr:0.1\n") ==
          "a.yaml:2:1: expected 'key: value', with a blank after the colon");
    CHECK(refusal("a: 1\njust text\n") == "a.yaml:2:1: expected 'key: value'");
    CHECK(refusal("model:\n  n_layer: 2\n   n_head: 3\n") ==
          "a.yaml:3:4: the key above has a value already; check the indentation");
    CHECK(refusal("a:\n- 1\n&x 2\n") == "a.yaml:3:4: expected 'key: value'");
    CHECK(refusal("a: \"x\n") == "a.yaml:1:4: this quote is never closed");
    CHECK(refusal("a: [1, 2\nb: 3\n") ==
          "a.yaml:2:1: this list or map goes on here, so this line must be indented deeper");
    CHECK(refusal("a: [1, 2\n") == "a.yaml:1:4: this bracket is never closed");
    CHECK(refusal("a: [1, , 2]\n") == "a.yaml:1:8: nothing stands before this comma");
    CHECK(refusal("a: [1}\n") == "a.yaml:1:6: expected ], the end of what is open");
    CHECK(refusal("a: \"x\"# c\n") == "a.yaml:1:7: unexpected text after the value");
  }

  TEST_CASE("a bracket may close below its key, as many people write it") {
    CHECK(parse("a: [\n  1,\n  2,\n]\nb: 3\n", "a.yaml").json() == R"({"a": [1, 2], "b": 3})");
  }

  TEST_CASE("bytes that are no UTF-8 and control characters are refused by place") {
    CHECK(refusal("a: 1\nb: x\xFFy\n") == "a.yaml:2:5: not UTF-8 text");
    CHECK(refusal("a: \xED\xA0\x80\n") == "a.yaml:1:4: not UTF-8 text");
    CHECK(refusal("a: \xC0\x80\n") == "a.yaml:1:4: not UTF-8 text");
    CHECK(refusal("a: x\xEF\xBB\xBFy\n") == "a.yaml:1:5: a byte order mark inside the text");
    CHECK(refusal("a: \xE2\x82\n") == "a.yaml:1:4: not UTF-8 text");
    CHECK(refusal(std::string("a: \0\n", 5)) ==
          "a.yaml:1:4: a control character; write it as an escape in double quotes");
    CHECK(refusal("a: \"\\N\"\n") ==
          "a.yaml:1:4: an escape that cannot be read; write \\u and four digits");
    CHECK(parse("a: \"\\x01\"\n", "a.yaml").find("a")->text() == "\x01");
  }

  TEST_CASE("depth, number of values and size are bounded") {
    CHECK(refusal(std::string(5000, '[')) == "a.yaml:1:66: nested deeper than 64");
    std::string deep;
    for (int i = 0; i < 100; ++i)
      deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
    CHECK(refusal(deep).find("nested deeper than 64") != std::string::npos);
    std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 8; ++i) {
      const std::string before = "*a" + std::to_string(i - 1);
      laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
      for (int j = 1; j < 10; ++j)
        laughs += ", " + before;
      laughs += "]\n";
    }
    CHECK(refusal(laughs).find("more than 100000 values") != std::string::npos);
    CHECK(refusal(std::string((4 << 20) + 1, '#')) == "a.yaml: larger than 4.00 MiB");
    std::string anchors;
    for (int i = 0; i < 100000; ++i)
      anchors += "&a ";
    CHECK(refusal(anchors).find("too many anchors") != std::string::npos);
  }

  TEST_CASE("a file that cannot be read says why") {
    CHECK(message([] { load("/nonexistent/a.yaml"); }) ==
          "/nonexistent/a.yaml: cannot be read: No such file or directory");
    const std::string folder = std::filesystem::temp_directory_path().string();
    CHECK(message([&] { load(folder); }) == folder + ": cannot be read: it is a folder");
  }

  TEST_CASE("an override replaces a value, or adds it") {
    Node node = parse("model: {n_layer: 2}\n", "a.yaml");
    const std::vector<std::string> arguments = {"model.n_layer=3", "optim.betas=[0.9, 0.99]",
                                                "data.path=a=b", "seed="};
    override_with(node, arguments);
    CHECK(
        node.json() ==
        R"({"model": {"n_layer": 3}, "optim": {"betas": [0.9, 0.99]}, "data": {"path": "a=b"}, "seed": ""})");
    CHECK(node.find("model.n_layer")->place().str() == "command line: model.n_layer=3");
    CHECK(node.find("optim.betas")->items()[1].place().str() ==
          "command line: optim.betas=[0.9, 0.99]");
  }

  TEST_CASE("a bad override names the argument") {
    Node node = parse("model: {n_layer: 2}\n", "a.yaml");
    const auto refused = [&](const std::string& argument) {
      return message([&] { override_with(node, std::vector<std::string>{argument}); });
    };
    CHECK(refused("model.n_layer") ==
          "command line: model.n_layer: expected key=value, as in optim.lr=0.001");
    CHECK(refused("=3") == "command line: =3: expected key=value, as in optim.lr=0.001");
    CHECK(refused("a..b=3") == "command line: a..b=3: expected key=value, as in optim.lr=0.001");
    CHECK(refused("optim.betas=[1, 2") ==
          "command line: optim.betas=[1, 2: this bracket is never closed");
    CHECK(refused("model.n_layer.x=1") ==
          "command line: model.n_layer.x=1: model.n_layer.x cannot be set: model.n_layer is 2 "
          "(a.yaml:1:18), not a map");
  }
}
