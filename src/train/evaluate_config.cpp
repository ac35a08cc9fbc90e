#include "train/evaluate_config.h"

#include <algorithm>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "data/eval_text.h"
#include "data/token_split.h"
#include "train/checkpoint_tokenizer.h"
#include "train/import/imported_model.h"
#include "train/import/json_node.h"
#include "train/resume.h"
#include "train/this_machine.h"

namespace fovea::train {

namespace {

using config::Node;

constexpr std::uint64_t kMostConfigBytes = 4 << 20;

bool given(std::span<const std::string> overrides, std::string_view key) {
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& text) { return text.starts_with(cat(key, "=")); });
}

// A model of another program has no configuration: its sizes are its own, and the rest is as given.
Node foreign_config(const std::string& path) {
  const config::Place place{.source = path, .line = 0, .column = 0};
  Node node = Node::map({}, place);
  node.set("train.init_from", Node::scalar(path, place, true));
  node.set("train.max_steps", Node::scalar("1", place));
  return node;
}

Node trained_config(const Checkpoint& checkpoint) {
  Node node = config::parse(checkpoint.state().config_yaml, cat(checkpoint.path(), "/state.json"));
  // What 0 stood for was found in the training data, which may not be there.
  const Node json = read_json(cat(checkpoint.path(), "/config.json"), kMostConfigBytes);
  for (const char* key : {"model.vocab_size", "model.classes"}) {
    if (const Node* size = json.find(key); size != nullptr) node.set(key, *size);
  }
  return node;
}

bool is_kind(const Node& node, std::string_view kind) {
  const Node* found = node.find("data.kind");
  const bool none = found == nullptr || found->is_null();
  return none ? kind == "text" : found->text() == kind;
}

// Other data than the model was trained with: of its own kind, whole, through the model's
// tokenizer.
void use_other_data(Node& node, std::span<const std::string> overrides) {
  const config::Place place{.source = "data.path", .line = 0, .column = 0};
  const std::string path = node.get_string("data.path");
  node.set("data.mix", Node());
  // Examples of a task are no text.
  const bool texts = is_kind(node, "text") || is_kind(node, "tokens") || is_kind(node, "markov");
  if (!given(overrides, "data.kind") && texts)
    node.set("data.kind", Node::scalar(data::holds_tokens(path) ? "tokens" : "text", place));
  if (!given(overrides, "data.val_fraction") && !given(overrides, "data.split"))
    node.set("data.val_fraction", Node::scalar("1", place));
}

// `own`: the fingerprint of the tokenizer that the model was trained with.
void require_tokenizer(const data::DataConfig& data, const std::string& own,
                       const std::string& model) {
  const std::unique_ptr<data::Tokenizer> tokenizer = data::open_data_tokenizer(data);
  if (tokenizer == nullptr || tokenizer->fingerprint() == own) return;
  const bool named = data.kind == "text" || data.tokenizer != "byte";
  throw IoError(cat(named ? data.tokenizer : data.path, ": is tokenizer ", tokenizer->kind(), " ",
                    tokenizer->fingerprint(), ", but ", model, " was trained with ", own,
                    "; ids would mean other texts"));
}

}  // namespace

EvaluatedModel evaluated_model(const std::string& path, std::span<const std::string> overrides) {
  EvaluatedModel out;
  const bool foreign = is_foreign_model(path);
  if (!foreign) out.checkpoint = find_checkpoint(path);
  Node node = foreign ? foreign_config(path) : trained_config(*out.checkpoint);
  const std::string home = foreign ? path : out.checkpoint->path();
  const config::Place place{.source = home, .line = 0, .column = 0};
  // The run's limit keeps its evaluations on the way short; here the whole split is meant.
  if (!given(overrides, "eval.max_batches")) node.set("eval.max_batches", Node::scalar("0", place));
  config::override_with(node, overrides);
  const bool other = given(overrides, "data.path");
  if (other) use_other_data(node, overrides);
  const bool text = is_kind(node, "text"), tokens = is_kind(node, "tokens");
  const bool named = given(overrides, "data.tokenizer");
  std::string own;
  if (text || tokens) {
    if (const auto tokenizer = tokenizer_of(home)) own = tokenizer->fingerprint();
    const std::string name = tokenizer_name_of(home);
    if (text && own.empty() && !named && (other || foreign))
      throw ConfigError(cat(home, ": has no tokenizer to read a text with; give data.tokenizer"));
    if (text && !own.empty() && !named) node.set("data.tokenizer", Node::scalar(name, place, true));
    // Token files bring their own, or their ids are taken as they are.
    if (tokens && other && !named) node.set("data.tokenizer", Node::scalar("byte", place, true));
  }
  out.config = RunConfig::of_checkpoint(node);
  out.config.train =
      usable_here(out.config.train, {.device = given(overrides, "train.device"),
                                     .precision = given(overrides, "train.precision"),
                                     .gemm_table = given(overrides, "train.gemm_table")});
  if (!own.empty() && (tokens || named)) require_tokenizer(out.config.data, own, home);
  return out;
}

}  // namespace fovea::train
