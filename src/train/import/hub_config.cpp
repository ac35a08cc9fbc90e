#include "train/import/hub_config.h"

#include <algorithm>
#include <array>
#include <span>

#include "config/option.h"
#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "train/import/json_node.h"
#include "train/run_config.h"

namespace fovea::train {

namespace {

using config::Node;
using config::Option;
using enum config::Type;

// What is read, under its dotted name; a choice of one word is all that our models can do. Ranges
// are those of our own keys.
constexpr Option kGpt2[] = {
    {"n_layer", integer, "", "[1, 1024]", ""},
    {"n_head", integer, "", "[1, 1024]", ""},
    {"n_embd", integer, "", "[1, 65536]", ""},
    {"n_positions", integer, "", "[1, 1048576]", ""},
    {"vocab_size", integer, "", "[1, 16777216]", ""},
    {"n_inner", integer, "0", "[0, 1048576]", ""},
    {"layer_norm_epsilon", number, "1e-5", "(0, 1]", ""},
    {"activation_function", choice, "gelu_new", "gelu_new | gelu_pytorch_tanh", ""},
    {"scale_attn_weights", choice, "true", "true", ""},
    {"scale_attn_by_inverse_layer_idx", choice, "false", "false", ""},
    {"add_cross_attention", choice, "false", "false", ""},
};
constexpr std::array kGpt2Sizes =
    std::to_array<std::string_view>({"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"});

constexpr Option kLlama[] = {
    {"num_hidden_layers", integer, "", "[1, 1024]", ""},
    {"num_attention_heads", integer, "", "[1, 1024]", ""},
    {"num_key_value_heads", integer, "0", "[0, 1024]", ""},
    {"hidden_size", integer, "", "[1, 65536]", ""},
    {"head_dim", integer, "0", "[0, 4096]", ""},
    {"intermediate_size", integer, "", "[1, 1048576]", ""},
    {"max_position_embeddings", integer, "", "[1, 1048576]", ""},
    {"vocab_size", integer, "", "[1, 16777216]", ""},
    {"rms_norm_eps", number, "1e-6", "(0, 1]", ""},
    {"hidden_act", choice, "silu", "silu", ""},
    {"rope_theta", number, "10000", "(1, inf)", ""},
    {"partial_rotary_factor", number, "1", "[1, 1]", ""},
    {"rope_parameters.rope_theta", number, "10000", "(1, inf)", ""},
    {"rope_parameters.rope_type", choice, "default", "default", ""},
    {"rope_parameters.partial_rotary_factor", number, "1", "[1, 1]", ""},
    {"rope_scaling.rope_type", choice, "default", "default", ""},
    {"rope_scaling.type", choice, "default", "default", ""},
};
constexpr std::array kLlamaSizes =
    std::to_array<std::string_view>({"num_hidden_layers", "num_attention_heads", "hidden_size",
                                     "intermediate_size", "max_position_embeddings", "vocab_size"});

// The fields that `options` declare, checked; the others of `root` are left out.
Node pick(const Node& root, std::span<const Option> options,
          std::span<const std::string_view> required) {
  Node known = Node::map({}, root.place());
  config::Findings findings;
  for (const Option& option : options) {
    const Node* value = root.find(option.key);
    if (value != nullptr && !value->is_null()) known.set(option.key, *value);
  }
  for (const std::string_view key : required) {
    if (known.find(key) == nullptr) findings.add(root.place(), key, cat(key, " is missing"));
  }
  Node out = config::complete(known, options, "", findings);
  findings.raise();
  return out;
}

int small(const Node& node, std::string_view key) {
  return static_cast<int>(node.get_int(key));
}

[[noreturn]] void refuse(const std::string& path, std::string_view key, const Node& value,
                         std::string_view why) {
  throw CheckpointError(cat(path, ": ", key, " is ", data::quote(value.json()), ", but ", why));
}

// What a configuration of any family may ask for and no model of ours does.
void refuse_extras(const Node& root, const std::string& path) {
  for (const char* key : {"quantization_config", "pruned_heads"}) {
    const Node* value = root.find(key);
    if (value == nullptr || value->is_null() || value->json() == "{}") continue;
    refuse(path, key, *value, "such weights cannot be read");
  }
  const Node* window = root.find("sliding_window");
  const Node* uses = root.find("use_sliding_window");
  if (window != nullptr && !window->is_null() && (uses == nullptr || uses->text() != "false")) {
    refuse(path, "sliding_window", *window, "sliding windows are not supported");
  }
  const Node* scaling = root.find("rope_scaling");
  const bool typed =
      root.find("rope_scaling.rope_type") != nullptr || root.find("rope_scaling.type") != nullptr;
  if (scaling != nullptr && !scaling->is_null() && !typed) {
    refuse(path, "rope_scaling", *scaling, "scaled rotation is not supported");
  }
  const Node* layers = root.find("layer_types");
  if (layers == nullptr || layers->is_null()) return;
  for (const Node& type : layers->items()) {
    if (type.text() != "full_attention") {
      refuse(path, "layer_types", type, "only full_attention is supported");
    }
  }
}

models::ModelConfig gpt2_model(const Node& root) {
  const Node c = pick(root, kGpt2, kGpt2Sizes);
  models::ModelConfig m;
  m.n_layer = small(c, "n_layer");
  m.n_head = small(c, "n_head");
  m.n_kv_head = m.n_head;
  m.n_embd = small(c, "n_embd");
  m.block_size = small(c, "n_positions");
  m.vocab_size = small(c, "vocab_size");
  m.norm_eps = c.get_number("layer_norm_epsilon");
  m.mlp_dim = small(c, "n_inner") > 0 ? small(c, "n_inner") : 4 * m.n_embd;
  m.norm = models::Norm::layer;
  m.mlp = models::Mlp::gelu;
  m.position = models::Position::learned;
  return m;
}

models::ModelConfig llama_model(const Node& root) {
  const Node c = pick(root, kLlama, kLlamaSizes);
  models::ModelConfig m;
  m.n_layer = small(c, "num_hidden_layers");
  m.n_head = small(c, "num_attention_heads");
  m.n_kv_head = small(c, "num_key_value_heads") > 0 ? small(c, "num_key_value_heads") : m.n_head;
  m.n_embd = small(c, "hidden_size");
  m.head_dim = small(c, "head_dim");
  m.block_size = small(c, "max_position_embeddings");
  m.vocab_size = small(c, "vocab_size");
  m.norm_eps = c.get_number("rms_norm_eps");
  m.mlp_dim = small(c, "intermediate_size");
  m.norm = models::Norm::rms;
  m.mlp = models::Mlp::swiglu;
  m.position = models::Position::rope;
  const bool nested = root.find("rope_parameters.rope_theta") != nullptr;
  m.rope.base = c.get_number(nested ? "rope_parameters.rope_theta" : "rope_theta");
  return m;
}

// The heads must share out the width before a head width exists at all.
void complete_heads(models::ModelConfig& m, const std::string& path) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw CheckpointError(cat(path, ": ", what));
  };
  require(m.head_dim > 0 || m.n_embd % m.n_head == 0,
          cat("the width ", m.n_embd, " is not divisible by ", m.n_head, " heads"));
  require(m.n_head % m.n_kv_head == 0,
          cat(m.n_head, " heads are not divisible by ", m.n_kv_head, " key and value heads"));
  m.head_dim = m.head_width();
  require(m.position != models::Position::rope || m.head_dim % 2 == 0,
          cat("the head width ", m.head_dim, " is odd, which rotation cannot be"));
  m.attention = standard_attention(m.n_layer);
}

}  // namespace

std::vector<models::ModelConfig::AttentionChoice> standard_attention(int layers) {
  const std::vector<AttentionKind> kinds = registered_attention();
  const auto standard = std::find_if(kinds.begin(), kinds.end(), [](const AttentionKind& kind) {
    return kind.name == "standard";
  });
  FOVEA_ASSERT(standard != kinds.end());
  const Node options = config::complete(Node(), standard->options, "model.attention");
  return std::vector<models::ModelConfig::AttentionChoice>(static_cast<std::size_t>(layers),
                                                           {standard->name, options});
}

HubConfig read_hub_config(const std::string& path) {
  constexpr std::uint64_t kMostBytes = 4 << 20;
  const Node root = read_json(path, kMostBytes);
  try {
    HubConfig out;
    const Node* type = root.find("model_type");
    if (type == nullptr || type->is_null()) {
      throw CheckpointError(cat(path, ": has no model_type, which says what the weights are of"));
    }
    out.model_type = type->text();
    refuse_extras(root, path);
    if (out.model_type == "gpt2") {
      out.model = gpt2_model(root);
    } else if (out.model_type == "llama" || out.model_type == "qwen3") {
      out.family = HubFamily::llama;
      out.model = llama_model(root);
      out.model.qk_norm = out.model_type == "qwen3";
    } else {
      throw CheckpointError(cat(path, ": model_type is ", data::quote(out.model_type),
                                ", but only gpt2, llama and qwen3 can be read"));
    }
    complete_heads(out.model, path);
    if (const Node* tied = root.find("tie_word_embeddings"); tied != nullptr && !tied->is_null()) {
      out.tie_embeddings = tied->as_bool("tie_word_embeddings");
    }
    return out;
  } catch (const ConfigError& e) {
    throw CheckpointError(e.what());
  }
}

}  // namespace fovea::train
