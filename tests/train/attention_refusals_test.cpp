// What attention methods refuse of a run is said when its configuration is read.

#include <doctest/doctest.h>

#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"
#include "tiny_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

// The model has two layers and block_size 16.
std::string refusal(std::vector<std::string> overrides) {
  try {
    tiny_config("a", std::move(overrides));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A text of two documents, packed.
class Packed {
 public:
  Packed() { overwrite(folder_.path("a.txt"), "some text\n"); }
  std::vector<std::string> with(const std::string& attention) const {
    return {"data={kind: text, pack: documents, path: " + folder_.path("a.txt") + "}",
            "model.attention=" + attention};
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("packed documents are refused to methods that would mix them, and they alone") {
  const Packed packed;
  for (const attention::AttentionSpec& spec : attention::attention_specs()) {
    CAPTURE(spec.name);
    if (!spec.caps.causal) continue;
    std::string options = cat("{kind: ", spec.name);
    if (spec.name == "linformer") options += ", causal_mode: block";
    if (spec.name == "short") options += ", dim: 8";
    const std::string text = refusal(packed.with(options + "}"));
    CHECK(text.empty() == spec.caps.segments);
    if (spec.caps.segments) continue;
    CHECK(holds(text, cat("model.attention.kind is ", spec.name,
                          ", which has no way to tell packed documents apart (data.pack: "
                          "documents), as bigbird, ")));
  }
  std::vector<std::string> plain = packed.with("reformer");
  plain.push_back("data.pack=plain");
  CHECK(refusal(plain).empty());
}

TEST_CASE("what a method of a list refuses names its layer and entry, each once") {
  const Packed packed;
  std::vector<std::string> six = packed.with("[standard, reformer, nystrom]");
  six.emplace_back("model.n_layer=6");
  const std::string both = refusal(six);
  CHECK(holds(both, "command line: model.attention=[standard, reformer, nystrom]: "));
  CHECK(holds(both, " (layer 1, model.attention[1])\n"));
  CHECK(holds(both, " (layer 2, model.attention[2])"));
  CHECK(!holds(both, "layer 4"));
  CHECK(
      refusal({"model.attention=[standard, nystrom]"}).ends_with("(layer 1, model.attention[1])"));
  CHECK(!holds(refusal({"model.attention=nystrom"}), "(layer"));
}

TEST_CASE("a length below block_size is refused with its place") {
  for (const char* options :
       {"{kind: cosformer, n_ref: 10}", "{kind: linformer, causal_mode: block, max_len: 10}",
        "{kind: bigbird, max_len: 10}"}) {
    CAPTURE(options);
    const std::string text = refusal({std::string("model.attention=") + options});
    CHECK(holds(text, "command line: model.attention="));
    CHECK(holds(text, " is 10, but must be at least model.block_size (16)"));
  }
}

TEST_CASE("evaluations may be as long as the method and the positions can") {
  const TemporaryFolder folder;
  overwrite(folder.path("a.txt"), "some text\n");
  const auto refused = [&](const std::string& attention, const std::string& context,
                           const std::string& position = "rope") {
    return refusal({"data={kind: text, path: " + folder.path("a.txt") + "}",
                    "model.position=" + position, "eval.context=" + context,
                    "model.attention=" + attention});
  };
  for (const char* attention :
       {"{kind: cosformer, n_ref: 200}", "{kind: linformer, causal_mode: block, max_len: 200}",
        "{kind: bigbird, max_len: 200}"}) {
    CAPTURE(attention);
    CHECK(refused(attention, "150").empty());
    CHECK(holds(refused(attention, "201"), "eval.context is 201, but model.attention.kind "));
    CHECK(holds(refused(attention, "201"), " takes at most 200"));
    CHECK(holds(refused(attention, "150", "learned"), "learned positions end at"));
  }
  CHECK(refused("{kind: cosformer, n_ref: current}", "150").empty());
  CHECK(holds(refused("cosformer", "17"),
              "model.attention.kind cosformer is bound to model.block_size (16)"));
}

TEST_CASE("layers that share a map of another size are named") {
  const std::string shared = "{kind: linformer, causal_mode: prefix, share: layer, rank: ";
  const std::string text = refusal({"model.attention=[" + shared + "4}, " + shared + "8}]"});
  CHECK(holds(text, "model.attention.rank is 8, but must be 4 as in layer 0"));
  CHECK(text.ends_with("(layer 1, model.attention[1])"));
}

TEST_CASE("an entry of a list that is at fault is the one that is named") {
  const std::string longformer = "model.attention={kind: longformer, ";
  CHECK(holds(refusal({longformer + "global_tokens: [2, 16]}"}),
              "model.attention.global_tokens[1] is 16, but must be an integer in [0, 15]"));
  CHECK(holds(refusal({longformer + "window: [4, 5]}"}),
              "model.attention.window[1] is 5, but must be even"));
  CHECK(holds(refusal({longformer + "window: 4, dilation: [1, 0]}"}),
              "model.attention.dilation[1] is 0, but must be an integer in [1, 65536]"));
}

TEST_CASE("a head of odd width that RoPE would turn is named by what made it odd") {
  CHECK(holds(refusal({"model.position=rope", "model.head_dim=7"}),
              "command line: model.head_dim=7: model.head_dim is 7, but must be even: "
              "model.position is rope"));
  const std::string narrow =
      refusal({"model.position=rope", "model.attention={kind: short, dim: 7}"});
  CHECK(holds(narrow, "command line: model.attention={kind: short, dim: 7}: "));
  CHECK(holds(narrow, "the width of q of attention short is 7, but must be even"));
  CHECK(holds(refusal({"model.position=rope", "model.rope.width=10",
                       "model.attention={kind: short, dim: 8}"}),
              "model.rope.width is 10, but must be even and at most 8"));
}
