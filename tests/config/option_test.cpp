#include "config/option.h"

#include <doctest/doctest.h>

#include "config/message.h"
#include "config/yaml.h"
#include "core/text.h"

using namespace fovea::config;
using fovea::test::message;

namespace {

constexpr Option kOptions[] = {
    {"model.n_layer", Type::integer, "4", "[1, 64]", "Layers."},
    {"model.norm", Type::choice, "layer", "layer | rms", "Norm."},
    {"model.rope.base", Type::number, "10000", "(1, inf)", "Base."},
    {"lr", Type::number, "3e-4", "(0, 1]", "Rate."},
    {"betas", Type::numbers, "[0.9, 0.95]", "[0, 1)", "Moments."},
    {"time", Type::duration, "0", "[0, inf)", "Time."},
    {"fuse", Type::boolean, "true", "", "Fuse."},
    {"path", Type::string, "", "", "Path."},
    {"globs", Type::strings, "[]", "", "Globs."},
    {"rates", Type::named_numbers, "", "(0, 8]", "Rates."},
};

Node completed(const std::string& text) {
  return complete(parse(text, "a.yaml"), kOptions, "");
}

std::string complaint(const std::string& text) {
  return message([&] { completed(text); });
}

}  // namespace

TEST_SUITE("config option") {
  TEST_CASE("an empty configuration gets every default, in the order of the options") {
    CHECK(completed("").json() ==
          R"({"model": {"n_layer": 4, "norm": "layer", "rope": {"base": 10000}}, "lr": 0.0003, )"
          R"("betas": [0.9, 0.95], "time": 0, "fuse": true, "globs": []})");
  }

  TEST_CASE("values get one spelling, so that equal configurations are equal texts") {
    const Node a = completed(
        "lr: 1e-3\nmodel: {n_layer: 1_0}\ntime: 5m\nfuse: TRUE\nbetas: [.9, 0.950]\npath: 12\n");
    const Node b = completed(
        "path: \"12\"\nfuse: true\ntime: 300\nbetas: [0.9, 0.95]\nmodel:\n  n_layer: 10\nlr: "
        "0.001\n");
    CHECK(a.yaml() == b.yaml());
    CHECK(a.get_string("path") == "12");
    CHECK(complete(a, kOptions, "").yaml() == a.yaml());
  }

  TEST_CASE("a word may stand for an integer, where the option has one") {
    constexpr Option kBatch[] = {{"batch", Type::integer, "", "[1, 8] | auto", "Size."}};
    const auto batch = [&](const std::string& text) {
      return complete(parse(text, "a.yaml"), kBatch, "").get_string("batch");
    };
    CHECK(batch("batch: auto") == "auto");
    CHECK(batch("batch: 8") == "8");
    CHECK(message([&] { batch("batch: 9"); }) ==
          "a.yaml:1:8: batch is 9, but must be an integer in [1, 8] or auto");
    CHECK(message([&] { batch("batch: \"auto\""); }).find("leave out the quotes") !=
          std::string::npos);
    CHECK(message([&] { completed("model: {n_layer: auto}"); }).find("an integer in [1, 64]") !=
          std::string::npos);
  }

  TEST_CASE("a map of numbers has free keys, of which the order means nothing") {
    const Node a = completed("rates: {'*.b': 2.0, a.*: 0.5, c: 1_0e-1}\n"),
               b = completed("rates:\n  c: 1\n  a.*: .5\n  \"*.b\": 2\n");
    using Rates = std::vector<std::pair<std::string, double>>;
    CHECK(a.get_named_numbers("rates") == Rates{{"*.b", 2}, {"a.*", 0.5}, {"c", 1}});
    CHECK(a.yaml() == b.yaml());
    CHECK(a.json() == b.json());
    CHECK(completed(a.yaml()).yaml() == a.yaml());
    CHECK(completed("rates:\n").find("rates") == nullptr);
  }

  TEST_CASE("a fault in a map of numbers names its key and place") {
    CHECK(complaint("rates: {a: 1, '*.b': 9}\n") ==
          "a.yaml:1:22: rates.*.b is 9, but must be a number in (0, 8]");
    CHECK(complaint("rates: {a: 0}\n") ==
          "a.yaml:1:12: rates.a is 0, but must be a number in (0, 8]");
    CHECK(complaint("rates: {a: fast}\n") ==
          "a.yaml:1:12: rates.a is 'fast', but must be a number in (0, 8]");
    CHECK(complaint("rates: {a: {b: 1}}\n") ==
          "a.yaml:1:12: rates.a is a map, but must be a number in (0, 8]");
    CHECK(
        complaint("rates: {a: }\n").ends_with("rates.a is empty, but must be a number in (0, 8]"));
    for (const char* inexact : {".inf", ".nan", "\"2\""})
      CHECK_MESSAGE(!complaint(fovea::cat("rates: {a: ", inexact, "}\n")).empty(), inexact);
    CHECK(complaint("rates: 3\n") ==
          "a.yaml:1:8: rates is 3, but must be a map of numbers in (0, 8]");
    CHECK(complaint("rates: [3]\n") ==
          "a.yaml:1:8: rates is a list, but must be a map of numbers in (0, 8]");
  }

  TEST_CASE("an empty value is the same as none") {
    CHECK(completed("lr:\nmodel:\npath: ~\nrates: {}\n").yaml() == completed("").yaml());
  }

  TEST_CASE("a misspelt key names the nearest one, at the key's place") {
    CHECK(complaint("model:\n  n_layr: 2\n") ==
          "a.yaml:2:3: unknown key model.n_layr; did you mean model.n_layer?");
    CHECK(complaint("modle:\n  n_layer: 2\n") ==
          "a.yaml:1:1: unknown key modle; did you mean model?");
    CHECK(complaint("model: {rope: {bse: 2}}\n") ==
          "a.yaml:1:16: unknown key model.rope.bse; did you mean model.rope.base?");
  }

  TEST_CASE("a right key in the wrong section names the right section") {
    CHECK(complaint("n_layer: 2\n") ==
          "a.yaml:1:1: unknown key n_layer; did you mean model.n_layer?");
    CHECK(complaint("model: {fuse: true}\n") ==
          "a.yaml:1:9: unknown key model.fuse; did you mean fuse?");
  }

  TEST_CASE("a key like no other lists what there is") {
    CHECK(complaint("model: {something_else: 2}\n") ==
          "a.yaml:1:9: unknown key model.something_else; model has n_layer, norm, rope");
    CHECK(message([] { complete(parse("k: 2\n", "a.yaml"), {}, "model.attention"); }) ==
          "a.yaml:1:1: unknown key model.attention.k; model.attention has no options");
  }

  TEST_CASE("a dotted key in a file is told to nest") {
    CHECK(complaint("model.n_layer: 2\n") ==
          "a.yaml:1:1: key 'model.n_layer' holds a dot; write maps inside maps instead");
  }

  TEST_CASE("a wrong type names value, type and range") {
    CHECK(complaint("model: {n_layer: four}\n") ==
          "a.yaml:1:18: model.n_layer is 'four', but must be an integer in [1, 64]");
    CHECK(complaint("model: {n_layer: 1.5}\n") ==
          "a.yaml:1:18: model.n_layer is 1.5, but must be an integer in [1, 64]");
    CHECK(complaint("model: {n_layer: \"4\"}\n") ==
          "a.yaml:1:18: model.n_layer is \"4\", but must be an integer in [1, 64]; leave out the "
          "quotes");
    CHECK(complaint("model: {n_layer: 010}\n") ==
          "a.yaml:1:18: model.n_layer is '010', but must be an integer in [1, 64]; readers "
          "disagree on leading zeros, so "
          "leave them out");
    CHECK(complaint("model: {n_layer: 0.5}\n") ==  // no leading zero
          "a.yaml:1:18: model.n_layer is 0.5, but must be an integer in [1, 64]");
    CHECK(complaint("fuse: no\n") == "a.yaml:1:7: fuse is 'no', but must be true or false");
    CHECK(complaint("lr: .nan\n") == "a.yaml:1:5: lr is '.nan', but must be a number in (0, 1]");
    CHECK(complaint("time: 5 minutes\n") ==
          "a.yaml:1:7: time is '5 minutes', but must be a duration (300, 5m, 1h30m) in "
          "[0, inf) seconds");
    CHECK(complaint("path: [a]\n") == "a.yaml:1:7: path is a list, but must be a text");
    CHECK(complaint("betas: {a: 1}\n") ==
          "a.yaml:1:8: betas is a map, but must be a list of numbers in [0, 1)");
    CHECK(complaint("model: 3\n") == "a.yaml:1:8: model is 3, but must be a map");
    CHECK(complaint("- 3\n") == "a.yaml:1:1: the configuration is a list, but must be a map");
    CHECK(complaint("lr: {a: 1}\n") == "a.yaml:1:5: lr is a map, but must be a number in (0, 1]");
  }

  TEST_CASE("a value out of range names the range, and ends of ranges are exact") {
    CHECK(complaint("model: {n_layer: 0}\n") ==
          "a.yaml:1:18: model.n_layer is 0, but must be an integer in [1, 64]");
    CHECK(complaint("lr: 0\n") == "a.yaml:1:5: lr is 0, but must be a number in (0, 1]");
    CHECK(completed("lr: 1\n").get_number("lr") == 1);
    CHECK(complaint("betas: [0.9, 1]\n") ==
          "a.yaml:1:14: betas[1] is 1, but must be a number in [0, 1)");
    CHECK(completed("model: {n_layer: 64}\n").get_int("model.n_layer") == 64);
    CHECK(complaint("model: {n_layer: 99999999999999999999}\n")
              .find("must be an integer in [1, 64]") != std::string::npos);
  }

  TEST_CASE("a choice names the words and the nearest") {
    CHECK(complaint("model: {norm: rmss}\n") ==
          "a.yaml:1:15: model.norm is 'rmss', but must be layer | rms; did you mean rms?");
    CHECK(complaint("model: {norm: batchnorm}\n") ==
          "a.yaml:1:15: model.norm is 'batchnorm', but must be layer | rms");
  }

  TEST_CASE("all findings are reported at once, in the order of the file") {
    CHECK(
        complaint("lr: 2\nfoo_bar_baz: 1\nmodel:\n  norm: x\n  n_layer: -1\n") ==
        "a.yaml:1:5: lr is 2, but must be a number in (0, 1]\n"
        "a.yaml:2:1: unknown key foo_bar_baz; there are model, lr, betas, time, fuse, path, globs, "
        "rates\n"
        "a.yaml:4:9: model.norm is 'x', but must be layer | rms\n"
        "a.yaml:5:12: model.n_layer is -1, but must be an integer in [1, 64]");
  }

  TEST_CASE("a prefix stands before every key of a message") {
    CHECK(message([] { complete(parse("lr: 7\nmodle: 1\n", "a.yaml"), kOptions, "x.y"); }) ==
          "a.yaml:1:5: x.y.lr is 7, but must be a number in (0, 1]\n"
          "a.yaml:2:1: unknown key x.y.modle; did you mean x.y.model?");
  }

  TEST_CASE("the documentation has a row an option, with bars escaped") {
    const std::string table = markdown(kOptions, "p");
    CHECK(table.find("| `p.model.norm` | layer \\| rms | `layer` | Norm. |\n") !=
          std::string::npos);
    CHECK(table.find("| `p.path` | text |  | Path. |\n") != std::string::npos);
    const std::string help = plain(kOptions, "");
    CHECK(help.find("\n  lr = 3e-4                number in (0, 1]") != std::string::npos);
  }

  TEST_CASE("an override without a value is refused but for text, which it empties") {
    const auto overridden = [](const std::string& argument) {
      Node node = parse("path: a\nlr: 0.5\n", "a.yaml");
      override_with(node, std::vector<std::string>{argument});
      return complete(node, kOptions, "");
    };
    CHECK(overridden("path=").get_string("path").empty());
    CHECK(overridden("lr=null").get_number("lr") == 3e-4);
    CHECK(message([&] { overridden("lr="); }) ==
          "command line: lr=: lr is \"\", but must be a number in (0, 1]");
    for (const char* key : {"model.n_layer=", "model.norm=", "betas=", "time=", "fuse="})
      CHECK_MESSAGE(!message([&] { overridden(key); }).empty(), key);
  }
}
