#include "config/node.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "config/message.h"
#include "config/yaml.h"

using namespace fovea::config;
using fovea::test::message;

TEST_SUITE("config node") {
  TEST_CASE("a dotted path finds values inside maps") {
    const Node node = parse("model: {rope: {base: 5}, n_layer: 2}\n", "a.yaml");
    CHECK(node.get_int("model.rope.base") == 5);
    CHECK(node.find("model")->find("n_layer")->text() == "2");
    CHECK(node.find("model.n_head") == nullptr);
    CHECK(node.find("model.n_layer.x") == nullptr);
    CHECK(node.find("mod") == nullptr);
  }

  TEST_CASE("values know their place, and entries the place of their key") {
    const Node node = parse("a: 1\nmodel:\n  n_layer:   2\n", "a.yaml");
    CHECK(node.find("model.n_layer")->place().str() == "a.yaml:3:14");
    CHECK(node.find("model.n_layer")->key_place().str() == "a.yaml:3:3");
  }

  TEST_CASE("columns count characters, not bytes") {
    const Node node = parse("{\xC3\xA9\xE2\x82\xAC: x}\n", "a.yaml");
    CHECK(node.entries().front().second.place().str() == "a.yaml:1:6");
  }

  TEST_CASE("set makes maps on the way and keeps the order of keys") {
    Node node;
    node.set("b.x", Node::scalar("1", {}));
    node.set("a", Node::scalar("2", {}));
    node.set("b.z", Node::scalar("3", {}));
    node.set("b.x", Node::scalar("4", {}));
    CHECK(node.yaml() == "b:\n  x: 4\n  z: 3\na: 2\n");
  }

  TEST_CASE("set through a scalar says what stands in the way") {
    Node node = parse("model:\n  attention: standard\n", "a.yaml");
    CHECK(
        message([&] { node.set("model.attention.kind", Node::scalar("x", {.source = "here"})); }) ==
        "here: model.attention.kind cannot be set: model.attention is 'standard' (a.yaml:2:14), "
        "not a map");
  }

  TEST_CASE("typed readings name place, key, value and what was wanted") {
    const Node node = parse("a: four\nb: \"4\"\nc: 010\nd: [1, x]\ne:\n", "a.yaml");
    CHECK(message([&] { node.get_int("a"); }) == "a.yaml:1:4: a is 'four', but must be an integer");
    CHECK(message([&] { node.get_int("b"); }) == "a.yaml:2:4: b is \"4\", but must be an integer");
    CHECK(message([&] { node.get_number("c"); }) == "a.yaml:3:4: c is '010', but must be a number");
    CHECK(message([&] { node.get_numbers("d"); }) == "a.yaml:4:8: d is 'x', but must be a number");
    CHECK(message([&] { node.get_bool("d"); }) ==
          "a.yaml:4:4: d is a list, but must be true or false");
    CHECK(message([&] { node.get_string("e"); }).find("e is empty, but must be text") !=
          std::string::npos);
    CHECK(message([&] { node.get_string("f"); }) == "a.yaml:1:1: f is missing");
  }

  TEST_CASE("a lone scalar is a list of one") {
    const Node node = parse("a: x\n", "a.yaml");
    CHECK(node.get_strings("a") == std::vector<std::string>{"x"});
  }

  TEST_CASE("YAML text reads back as the same value") {
    const char* const text =
        "plain: text\nquoted: \"12\"\nempty: \"\"\nnothing:\nodd: 'it''s: [odd] #'\nmulti: "
        "\"a\\nb\\tc\"\n"
        "list: [1, two, \"3\"]\nmaps:\n  - kind: a\n    k: 1\n  - b\n  - [x, {y: z}]\nempty_map: "
        "{}\nempty_list: []\n"
        "\"a key: \": 1\nnested: {a: {b: {c: d}}}\n";
    const Node node = parse(text, "a.yaml");
    const Node again = parse(node.yaml(), "again.yaml");
    CHECK(again.json() == node.json());
    CHECK(again.yaml() == node.yaml());
  }

  TEST_CASE("JSON has numbers, bools and null for plain scalars only") {
    const Node node = parse(
        "a: 1e6\nb: 1_000\nc: \"1\"\nd: 010\ne: no\nf: True\ng:\nh: 3e-4\ni: .inf\n", "a.yaml");
    CHECK(
        node.json() ==
        R"({"a": 1000000, "b": 1000, "c": "1", "d": "010", "e": "no", "f": true, "g": null, "h": 0.0003, "i": ".inf"})");
    CHECK(nlohmann::json::parse(node.json()).at("h").get<double>() == 0.0003);
  }
}
