#include "train/run_config_data.h"

#include <array>
#include <cmath>
#include <string_view>

#include "core/text.h"
#include "train/run_config.h"

namespace fovea::train {

namespace {

using config::Findings;
using config::Node;

constexpr std::array kMixOptions = std::to_array<config::Option>({
    {"path", config::Type::string, "", "", "As data.path."},
    {"weight", config::Type::number, "1", "(0, inf)",
     "Share of the training examples, relative to the other corpora."},
});

int small(const Node& node, std::string_view key) {
  return static_cast<int>(node.get_int(key));
}

std::vector<data::MixPart> read_mix(Node& resolved, Findings& findings) {
  constexpr const char* kPath = "data.mix";
  std::vector<data::MixPart> out;
  const Node* given = resolved.find(kPath);
  if (given == nullptr || given->is_null()) return out;
  if (given->kind() != Node::Kind::list || given->items().empty()) {
    findings.add(given->place(), kPath,
                 cat(kPath, " is ", given->describe(),
                     ", but must be a list of {path: PATH, weight: NUMBER}"));
    return out;
  }
  std::vector<Node> entries;
  for (const Node& item : given->items()) {
    const std::string path = cat(kPath, "[", entries.size(), "]");
    if (item.kind() != Node::Kind::map) {
      findings.add(
          item.place(), path,
          cat(path, " is ", item.describe(), ", but must be {path: PATH, weight: NUMBER}"));
      return out;
    }
    entries.push_back(config::complete(item, kMixOptions, path, findings));
    if (entries.back().find("path") == nullptr) {
      findings.add(item.place(), cat(path, ".path"), cat(path, ".path is missing"));
      return out;
    }
    out.push_back({entries.back().get_string("path"), entries.back().get_number("weight")});
  }
  resolved.set(kPath, Node::list(std::move(entries), given->place()));
  return out;
}

// Whose keys begin like this; all others are everybody's.
struct Users {
  std::string_view key, kinds;
};
constexpr Users kUsers[] = {
    {"data.path", "text, tokens, listops"},
    {"data.mix", "text, tokens"},
    {"data.tokenizer", "text, tokens"},
    {"data.pack", "text, tokens"},
    {"data.text_field", "text"},
    {"data.val_fraction", "text, tokens, listops"},
    {"data.token_type", "tokens"},
    {"data.vocab_size", "tokens"},
    {"data.mqar.", "mqar"},
    {"data.markov.", "markov"},
    {"data.listops.", "listops"},
    {"data.niah.", "niah"},
};

// "" : everybody.
std::string_view users_of(std::string_view key) {
  for (const Users& users : kUsers) {
    if (key == users.key || (users.key.ends_with('.') && key.starts_with(users.key)))
      return users.kinds;
  }
  return {};
}

data::ListOpsConfig listops_config(const Node& node) {
  return {.train_examples = node.get_int("data.listops.train_examples"),
          .validation_examples = node.get_int("data.listops.validation_examples"),
          .test_examples = node.get_int("data.listops.test_examples"),
          .min_length = small(node, "data.listops.min_length"),
          .max_length = small(node, "data.listops.max_length"),
          .max_depth = small(node, "data.listops.max_depth"),
          .max_args = small(node, "data.listops.max_args")};
}

data::NiahConfig niah_config(const Node& node, Findings& findings) {
  data::NiahConfig out;
  out.layout = node.get_string("data.niah.layout") == "marked" ? data::NiahLayout::marked
                                                               : data::NiahLayout::elsaa;
  out.generator = node.get_string("data.niah.generator") == "reference"
                      ? data::NiahGenerator::reference
                      : data::NiahGenerator::corrected;
  out.needles = small(node, "data.niah.needles");
  out.decoys = small(node, "data.niah.decoys");
  out.train_examples = node.get_int("data.niah.train_examples");
  out.validation_examples = node.get_int("data.niah.validation_examples");
  out.test_examples = node.get_int("data.niah.test_examples");
  constexpr const char* kLengths = "data.niah.test_lengths";
  for (const double length : node.get_numbers(kLengths)) {
    if (length != std::floor(length)) {
      findings.add(node.find(kLengths)->place(), kLengths,
                   cat(kLengths, " has ", length, ", but a length is a number of tokens"));
    }
    out.test_lengths.push_back(static_cast<int>(length));
  }
  out.depths = node.get_numbers("data.niah.depths");
  return out;
}

}  // namespace

std::vector<std::string> unused_data_keys(const Node& given, const Node& resolved,
                                          Findings& findings) {
  std::vector<std::string> unused;
  if (findings.has("data.kind")) return unused;
  const std::string kind = resolved.get_string("data.kind");
  const Node defaults = config::complete(Node(), config_options(), "");
  for (const config::Option& option : config_options()) {
    const std::string_view kinds = users_of(option.key);
    // No kind's name is a part of another's.
    if (kinds.empty() || kinds.find(kind) != std::string_view::npos) continue;
    const Node *node = given.find(option.key), *value = resolved.find(option.key);
    if (node == nullptr || node->is_null() || value == nullptr || findings.has(option.key))
      continue;
    const Node* const usual = defaults.find(option.key);
    if (usual != nullptr ? value->json() == usual->json() : value->text().empty()) continue;
    if (!node->place().source.starts_with("command line")) {
      unused.emplace_back(option.key);
      continue;
    }
    findings.add(node->place(), option.key,
                 cat(option.key, " is given, but data.kind ", kind, " does not use it (", kinds,
                     kinds.find(',') == std::string_view::npos ? " does)" : " do)"));
  }
  return unused;
}

data::DataConfig data_config(Node& resolved, Findings& findings) {
  data::DataConfig d;
  d.mix = read_mix(resolved, findings);
  const Node& node = resolved;
  d.kind = node.get_string("data.kind");
  if (node.find("data.path") != nullptr) d.path = node.get_string("data.path");
  d.tokenizer = node.get_string("data.tokenizer");
  d.text_field = node.get_string("data.text_field");
  d.pack = node.get_string("data.pack") == "documents" ? data::Pack::documents : data::Pack::plain;
  d.seq_len = small(node, "data.seq_len");
  if (d.seq_len == 0) d.seq_len = small(node, "model.block_size");
  d.val_fraction = node.get_number("data.val_fraction");
  d.token_bytes = node.get_string("data.token_type") == "uint32" ? 4 : 2;
  d.vocab_size = node.get_int("data.vocab_size");
  d.mqar.vocab = small(node, "data.mqar.vocab");
  d.mqar.pairs = small(node, "data.mqar.pairs");
  d.mqar.train_examples = node.get_int("data.mqar.train_examples");
  d.mqar.test_examples = node.get_int("data.mqar.test_examples");
  d.mqar.power = node.get_number("data.mqar.power");
  d.mqar.random_non_queries = node.get_bool("data.mqar.random_non_queries");
  d.markov.vocab = small(node, "data.markov.vocab");
  d.markov.train_examples = node.get_int("data.markov.train_examples");
  d.markov.test_examples = node.get_int("data.markov.test_examples");
  d.listops = listops_config(node);
  d.niah = niah_config(node, findings);
  return d;
}

}  // namespace fovea::train
