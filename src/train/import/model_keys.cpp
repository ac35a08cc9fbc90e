#include "train/import/model_keys.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "config/scalar.h"
#include "core/error.h"
#include "core/text.h"
#include "train/checkpoint_tokenizer.h"

namespace fovea::train {

namespace {

using config::Node;
using models::ModelConfig;

struct Key {
  const char* name;                         // below model
  std::string (*text)(const ModelConfig&);  // defaults that follow from other keys are worked out
};

const char* word(bool value) {
  return value ? "true" : "false";
}

std::string position_word(const ModelConfig& m) {
  constexpr std::array kWords{"none", "sinusoidal", "learned", "rope", "alibi"};
  return kWords[static_cast<std::size_t>(m.position)];
}

// All that the weights are made for.
constexpr Key kKeys[] = {
    {"kind", [](const ModelConfig& m) { return m.kind; }},
    {"n_layer", [](const ModelConfig& m) { return cat(m.n_layer); }},
    {"n_head", [](const ModelConfig& m) { return cat(m.n_head); }},
    {"n_kv_head", [](const ModelConfig& m) { return cat(m.kv_heads()); }},
    {"n_embd", [](const ModelConfig& m) { return cat(m.n_embd); }},
    {"head_dim", [](const ModelConfig& m) { return cat(m.head_width()); }},
    {"block_size", [](const ModelConfig& m) { return cat(m.block_size); }},
    {"vocab_size", [](const ModelConfig& m) { return cat(m.vocab_size); }},
    {"norm",
     [](const ModelConfig& m) { return cat(m.norm == models::Norm::layer ? "layer" : "rms"); }},
    {"norm_eps", [](const ModelConfig& m) { return config::number_text(m.norm_eps); }},
    {"mlp",
     [](const ModelConfig& m) { return cat(m.mlp == models::Mlp::gelu ? "gelu" : "swiglu"); }},
    {"mlp_dim", [](const ModelConfig& m) { return cat(m.mlp_width()); }},
    {"position", position_word},
    {"rope.base", [](const ModelConfig& m) { return config::number_text(m.rope.base); }},
    {"rope.layout",
     [](const ModelConfig& m) { return cat(m.rope.interleaved ? "interleaved" : "half"); }},
    {"rope.width",
     [](const ModelConfig& m) { return cat(m.rope.width == m.head_width() ? 0 : m.rope.width); }},
    {"qk_norm", [](const ModelConfig& m) { return cat(word(m.qk_norm)); }},
    {"bias", [](const ModelConfig& m) { return cat(word(m.bias)); }},
    {"tie_embeddings", [](const ModelConfig& m) { return cat(word(m.tie_embeddings)); }},
};

bool matters(std::string_view key, const ModelConfig& m) {
  if (key == "block_size") return m.position == models::Position::learned;
  return !key.starts_with("rope.") || m.position == models::Position::rope;
}

bool is_open(const Node& given, std::string_view key) {
  const Node* value = given.find(cat("model.", key));
  return value == nullptr || value->is_null() || (key == "vocab_size" && value->text() == "0");
}

// Whether texts are to be encoded, and nothing says how.
bool wants_tokenizer(const Node& given) {
  const Node* kind = given.find("data.kind");
  const Node* tokenizer = given.find("data.tokenizer");
  return (kind == nullptr || kind->is_null() || kind->text() == "text") &&
         (tokenizer == nullptr || tokenizer->is_null());
}

// The model's own, by a name that stays the same while the run it comes from goes on.
std::string own_tokenizer(const ImportedModel& source, const Node& given) {
  std::string name = tokenizer_name_of(source.path);
  const Node* path = given.find("train.init_from");
  const std::filesystem::path latest = std::filesystem::path(path->text()) / "ckpt" / "latest";
  std::error_code ignored;
  if (name == source.path && std::filesystem::equivalent(latest, name, ignored))
    name = latest.string();
  // Bytes have no files.
  if (name.empty() && source.config.vocab_size == 256) name = "byte";
  if (!name.empty()) return name;
  throw ConfigError(cat(path->place().str(), ": train.init_from (", source.path,
                        ") has no tokenizer beside it, so its ", source.config.vocab_size,
                        " ids mean nothing for texts: give data.tokenizer=FOLDER or FILE (or "
                        "byte, to learn bytes from these weights)"));
}

// Puts leaf after leaf, so that a section that is given in part is completed.
void take(const Node& from, const std::string& key, Node& into) {
  if (from.kind() == Node::Kind::map && key != "attention") {
    for (const auto& [name, value] : from.entries())
      take(value, key.empty() ? name : cat(key, ".", name), into);
  } else if (is_open(into, key)) {
    into.set(cat("model.", key), from);
  }
}

}  // namespace

Node model_keys(const ModelConfig& model, const std::string& source) {
  const config::Place place{.source = source, .line = 0, .column = 0};
  Node out = Node::map({}, place);
  for (const Key& key : kKeys)
    out.set(key.name, Node::scalar(key.text(model), place));
  return out;
}

std::optional<ImportedModel> model_source(const Node& given) {
  const Node* path = given.find("train.init_from");
  if (path == nullptr || path->kind() != Node::Kind::scalar || path->text().empty()) {
    return std::nullopt;
  }
  const bool complete = std::none_of(std::begin(kKeys), std::end(kKeys),
                                     [&](const Key& key) { return is_open(given, key.name); }) &&
                        !is_open(given, "attention") && !wants_tokenizer(given);
  if (complete) return std::nullopt;
  return import_model(path->text());
}

Node with_model_of(const ImportedModel& source, const Node& given) {
  Node out = given;
  take(source.keys, "", out);
  if (wants_tokenizer(given)) {
    const config::Place place{.source = source.path, .line = 0, .column = 0};
    out.set("data.tokenizer", Node::scalar(own_tokenizer(source, given), place, true));
  }
  return out;
}

std::vector<Disagreement> disagreements(const ModelConfig& model, const ImportedModel& source) {
  std::vector<Disagreement> out;
  for (const Key& key : kKeys) {
    const std::string ours = key.text(model), theirs = key.text(source.config);
    if (ours == theirs || !matters(key.name, source.config)) continue;
    const std::string name = cat("model.", key.name);
    out.push_back(
        {name, cat(name, " is ", ours, ", but train.init_from (", source.path, ") has ", theirs)});
  }
  return out;
}

void check_model_source(const ModelConfig& model, const ImportedModel& source, const Node& given,
                        config::Findings& findings) {
  for (const Disagreement& wrong : disagreements(model, source)) {
    if (findings.has(wrong.key)) continue;
    const Node* value = given.find(wrong.key);
    findings.add(value != nullptr ? value->place() : given.place(), wrong.key, wrong.what);
  }
}

}  // namespace fovea::train
