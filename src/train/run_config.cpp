#include "train/run_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <xxhash.h>

#include "core/error.h"
#include "core/text.h"
#include "train/import/model_keys.h"
#include "train/run_config_checks.h"
#include "train/run_config_data.h"

namespace fovea::train {

namespace {

using config::Findings;
using config::Node;
using config::Place;

// The place of a choice's word in its range, which lists the enum's values in order.
template <class E>
E choice_of(const Node& node, std::string_view key) {
  const auto options = config_options();
  const auto option = std::find_if(options.begin(), options.end(),
                                   [&](const config::Option& o) { return o.key == key; });
  FOVEA_ASSERT(option != options.end());
  const std::string word = node.get_string(key);
  int index = 0;
  for (std::string_view rest = option->range; rest.substr(0, rest.find(" | ")) != word; ++index) {
    rest.remove_prefix(rest.find(" | ") + 3);
  }
  return static_cast<E>(index);
}

int small(const Node& node, std::string_view key) {
  return static_cast<int>(node.get_int(key));
}

models::ModelConfig model_config(const Node& node) {
  models::ModelConfig m;
  m.kind = node.get_string("model.kind");
  m.n_layer = small(node, "model.n_layer");
  m.n_head = small(node, "model.n_head");
  m.n_kv_head = small(node, "model.n_kv_head");
  m.n_embd = small(node, "model.n_embd");
  m.head_dim = small(node, "model.head_dim");
  m.block_size = small(node, "model.block_size");
  m.vocab_size = small(node, "model.vocab_size");
  m.norm = choice_of<models::Norm>(node, "model.norm");
  m.norm_eps = node.get_number("model.norm_eps");
  m.mlp = choice_of<models::Mlp>(node, "model.mlp");
  m.mlp_dim = small(node, "model.mlp_dim");
  m.position = choice_of<models::Position>(node, "model.position");
  m.rope.base = node.get_number("model.rope.base");
  m.rope.interleaved = node.get_string("model.rope.layout") == "interleaved";
  m.rope.width = small(node, "model.rope.width");
  m.qk_norm = node.get_bool("model.qk_norm");
  m.bias = node.get_bool("model.bias");
  m.interpolate_positions = node.get_bool("model.interpolate_positions");
  m.tie_embeddings = node.get_bool("model.tie_embeddings");
  m.pool = choice_of<models::Pooling>(node, "model.pool");
  m.classes = small(node, "model.classes");
  m.dropout = node.get_number("model.dropout");
  m.attention_dropout = node.get_number("model.attention_dropout");
  m.init_std = node.get_number("model.init_std");
  return m;
}

TrainConfig train_config(const Node& node) {
  TrainConfig t;
  t.global_batch_size = node.get_int("train.global_batch_size");
  t.micro_batch_auto = node.find("train.micro_batch_size")->text() == "auto";
  t.micro_batch_size =
      t.micro_batch_auto ? t.global_batch_size : node.get_int("train.micro_batch_size");
  t.max_steps = node.get_int("train.max_steps");
  t.max_tokens = node.get_int("train.max_tokens");
  t.max_seconds = node.get_number("train.max_time");
  t.precision = choice_of<Precision>(node, "train.precision");
  t.max_norm = node.get_number("train.max_norm");
  t.recompute = node.get_bool("train.recompute");
  t.graphs = node.get_bool("train.cuda_graphs");
  if (node.find("train.gemm_table") != nullptr) t.gemm_table = node.get_string("train.gemm_table");
  t.resume = node.get_string("train.resume");
  t.on_nonfinite = choice_of<OnNonfinite>(node, "train.on_nonfinite");
  t.micro_order = choice_of<MicroOrder>(node, "train.micro_order");
  t.threads = small(node, "train.threads");
  t.device = choice_of<DeviceChoice>(node, "train.device");
  if (node.find("train.init_from") != nullptr) t.init_from = node.get_string("train.init_from");
  t.freeze = node.get_strings("train.freeze");
  return t;
}

optim::OptimConfig optim_config(const Node& node, Findings& findings) {
  optim::OptimConfig o;
  o.kind = node.get_string("optim.kind");
  o.lr = node.get_number("optim.lr");
  const std::vector<double> betas = node.get_numbers("optim.betas");
  if (betas.size() == 2) {
    o.beta1 = betas[0];
    o.beta2 = betas[1];
  } else {
    findings.add(node.find("optim.betas")->place(), "optim.betas",
                 cat("optim.betas has ", betas.size(), " numbers, but must have 2"));
  }
  o.eps = node.get_number("optim.eps");
  o.weight_decay = node.get_number("optim.weight_decay");
  o.no_decay = node.get_strings("optim.no_decay");
  if (node.find("optim.lr_scale") != nullptr) {
    for (auto& [glob, factor] : node.get_named_numbers("optim.lr_scale"))
      o.lr_scale.push_back({std::move(glob), factor});
  }
  return o;
}

optim::ScheduleConfig schedule_config(const Node& node) {
  return {.kind = choice_of<optim::ScheduleKind>(node, "sched.kind"),
          .warmup_steps = node.get_int("sched.warmup_steps"),
          .decay_steps = node.get_int("sched.decay_steps"),
          .min_lr_ratio = node.get_number("sched.min_lr_ratio")};
}

EvalConfig eval_config(const Node& node) {
  return {.interval = node.get_int("eval.interval"),
          .max_batches = node.get_int("eval.max_batches"),
          .patience = small(node, "eval.patience"),
          .micro_batch_size = node.get_int("eval.micro_batch_size"),
          .protocol = {.context = node.get_int("eval.context"),
                       .stride = node.get_int("eval.stride"),
                       .prefix = choice_of<data::Tristate>(node, "eval.prefix"),
                       .documents = choice_of<data::Tristate>(node, "eval.documents")},
          .random_batches = node.get_int("eval.random_batches"),
          .word_convention = choice_of<WordConvention>(node, "eval.word_convention"),
          .words = node.get_int("eval.words"),
          .split = choice_of<data::Split>(node, "data.split")};
}

CkptConfig ckpt_config(const Node& node) {
  return {.interval = node.get_int("ckpt.interval"),
          .keep_last = node.get_int("ckpt.keep_last"),
          .keep_every = node.get_int("ckpt.keep_every"),
          .keep_best = node.get_bool("ckpt.keep_best"),
          .async = node.get_string("ckpt.async") == "auto"     ? AsyncSave::automatic
                   : node.get_string("ckpt.async") == "always" ? AsyncSave::always
                                                               : AsyncSave::never};
}

DistributedConfig distributed_config(const Node& node) {
  const std::string dtype = node.get_string("distributed.reduce_dtype");
  return {.reproducible = node.get_bool("distributed.reproducible"),
          .zero = static_cast<int>(node.get_int("distributed.zero")),
          .bucket_mb = node.get_number("distributed.bucket_mb"),
          .reduce_dtype = dtype == "bf16"   ? ReduceDType::bf16
                          : dtype == "fp16" ? ReduceDType::fp16
                                            : ReduceDType::fp32,
          .check_interval = node.get_int("distributed.check_interval"),
          .timeout = node.get_number("distributed.timeout"),
          .join_timeout = node.get_number("distributed.join_timeout")};
}

using Attention = models::ModelConfig::AttentionChoice;

std::vector<std::string> names_of(std::span<const AttentionKind> kinds) {
  std::vector<std::string> names;
  for (const AttentionKind& kind : kinds) {
    names.push_back(kind.name);
    if (!kind.alias.empty()) names.push_back(kind.alias);
  }
  return names;
}

// One entry of model.attention: a kind, or a map of kind and options. Nothing if the kind is
// unknown.
std::optional<Attention> attention_choice(const Node& node, const std::string& path,
                                          std::span<const AttentionKind> kinds,
                                          Findings& findings) {
  Attention out;
  std::vector<std::pair<std::string, Node>> options;
  const Node* kind = &node;
  if (node.kind() == Node::Kind::map) {
    kind = node.find("kind");
    for (const auto& entry : node.entries()) {
      if (entry.first != "kind") options.push_back(entry);
    }
  }
  if (kind != nullptr && kind->kind() != Node::Kind::scalar) {
    findings.add(kind->place(), path,
                 cat(path, " is ", kind->describe(), ", but must be a kind or a map with a kind"));
    return std::nullopt;
  }
  if (kind != nullptr) out.kind = kind->text();
  const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const AttentionKind& k) {
    return k.name == out.kind || (!k.alias.empty() && k.alias == out.kind);
  });
  if (known == kinds.end()) {
    const std::vector<std::string> names = names_of(kinds);
    const std::string near = nearest(out.kind, names);
    findings.add(kind != nullptr ? kind->place() : node.place(), path,
                 cat(path, ".kind is '", out.kind, "', but must be one of ", join(names, ", "),
                     near.empty() ? "" : cat("; did you mean ", near, "?")));
    return std::nullopt;
  }
  out.kind = known->name;
  out.options =
      config::complete(Node::map(std::move(options), node.place()), known->options, path, findings);
  return out;
}

Node resolved_choice(const Attention& choice, const Place& place) {
  std::vector<std::pair<std::string, Node>> entries = {{"kind", Node::scalar(choice.kind, place)}};
  entries.insert(entries.end(), choice.options.entries().begin(), choice.options.entries().end());
  return Node::map(std::move(entries), place);
}

// Fills run.model.attention, one entry a layer, and puts the completed pattern into `resolved`.
void resolve_attention(RunConfig& run, std::span<const AttentionKind> kinds, Findings& findings) {
  constexpr const char* kPath = "model.attention";
  const Node given = *run.resolved.find(kPath);
  const bool many = given.kind() == Node::Kind::list;
  const std::vector<Node> pattern = many ? given.items() : std::vector<Node>{given};
  const auto layers = static_cast<std::size_t>(run.model.n_layer);
  if ((pattern.empty() || pattern.size() > layers) && !findings.has("model.n_layer")) {
    findings.add(given.place(), kPath,
                 cat(kPath, " has ", pattern.size(), " entries, but must have 1 to model.n_layer (",
                     layers, ")"));
  }
  std::vector<Attention> choices;
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string path = many ? cat(kPath, "[", i, "]") : kPath;
    const auto choice = attention_choice(pattern[i], path, kinds, findings);
    if (!choice) return;
    choices.push_back(*choice);
    nodes.push_back(resolved_choice(*choice, pattern[i].place()));
  }
  if (choices.empty()) return;
  for (std::size_t layer = 0; layer < layers; ++layer)
    run.model.attention.push_back(choices[layer % choices.size()]);
  run.resolved.set(kPath,
                   nodes.size() == 1 ? nodes.front() : Node::list(std::move(nodes), given.place()));
}

// Values that default to other keys or to the file's name. They go where the schema has them, so
// that the text of a resolved configuration is the same when it is read again.
Node filled_in(Node resolved, const Node& given) {
  const Place place{.source = "default", .line = 0, .column = 0};
  if (resolved.find("train.micro_batch_size") == nullptr) {
    resolved.set("train.micro_batch_size",
                 Node::scalar(resolved.get_string("train.global_batch_size"), place));
  }
  if (const Node* out = resolved.find("out_dir"); out == nullptr || out->text().empty()) {
    const std::string name = given.place().line > 0
                                 ? std::filesystem::path(given.place().source).stem().string()
                                 : std::string("run");
    resolved.set("out_dir", Node::scalar(cat("runs/", name), place, true));
  }
  Findings none;
  return config::complete(resolved, config_options(), "", none);
}

bool given_micro_batch(const Node& given) {
  const Node* const size = given.find("train.micro_batch_size");
  return size != nullptr && !size->is_null() && !size->text().empty() && size->text() != "auto";
}

std::string hash_of(Node node, std::span<const std::string_view> without) {
  for (const std::string_view key : without)
    node.set(key, Node());
  const std::string text = node.json();
  std::string out;
  for (std::uint64_t hash = XXH3_64bits(text.data(), text.size()); out.size() < 16; hash <<= 4) {
    out.push_back("0123456789abcdef"[hash >> 60]);
  }
  return out;
}

// The resolved values with 0 replaced by what it stands for, without what no result depends on.
Node result_node(const RunConfig& run) {
  Node node = run.resolved;
  const auto put = [&](std::string_view key, std::int64_t value) {
    node.set(key, Node::scalar(cat(value), Place()));
  };
  put("model.n_kv_head", run.model.kv_heads());
  put("model.head_dim", run.model.head_width());
  put("model.mlp_dim", run.model.mlp_width());
  put("data.seq_len", run.data.seq_len);
  const data::EvalProtocol& protocol = run.eval.protocol;
  put("eval.context", protocol.context);
  put("eval.stride", protocol.stride == 0 ? protocol.context : protocol.stride);
  static constexpr std::array<std::string_view, 17> kNoEffect = {"train.threads",
                                                                 "train.recompute",
                                                                 "train.micro_order",
                                                                 "train.resume",
                                                                 "train.max_time",
                                                                 "log",
                                                                 "ckpt",
                                                                 "out_dir",
                                                                 "data.split",
                                                                 "eval.random_batches",
                                                                 "eval.word_convention",
                                                                 "eval.words",
                                                                 "distributed.zero",
                                                                 "distributed.bucket_mb",
                                                                 "distributed.check_interval",
                                                                 "distributed.timeout",
                                                                 "distributed.join_timeout"};
  for (const std::string_view key : kNoEffect)
    node.set(key, Node());
  for (const std::string_view kind : {"mqar", "markov", "listops", "niah"}) {
    if (run.data.kind != kind) node.set(cat("data.", kind), Node());
  }
  if (run.model.position != models::Position::rope) node.set("model.rope", Node());
  return node;
}

RunConfig read(const Node& node, std::span<const AttentionKind> attention, Machine machine) {
  Findings findings;
  RunConfig run;
  const std::optional<ImportedModel> source = model_source(node);
  const Node whole = source ? with_model_of(*source, node) : node;
  run.resolved = filled_in(config::complete(whole, config_options(), "", findings), node);
  const Node& values = run.resolved;
  run.task = values.get_string("task");
  run.seed = static_cast<std::uint64_t>(values.get_int("seed"));
  run.out_dir = values.get_string("out_dir");
  run.model = model_config(values);
  if (source) check_model_source(run.model, *source, node, findings);
  run.data = data_config(run.resolved, findings);
  run.data.cls = !run.model.causal() && run.model.pool == models::Pooling::cls;
  run.model.packed = run.data.pack == data::Pack::documents &&
                     (run.data.kind == "text" || run.data.kind == "tokens");
  // Token files that do not tell are the model's own, unless something says otherwise.
  if (run.data.kind == "tokens" && run.data.vocab_size == 0 && run.data.tokenizer == "byte") {
    run.data.vocab_size = run.model.vocab_size;
  }
  run.train = train_config(values);
  run.train.micro_batch_given = given_micro_batch(node);
  run.optim = optim_config(values, findings);
  run.sched = schedule_config(values);
  run.eval = eval_config(values);
  if (run.eval.protocol.context == 0) run.eval.protocol.context = run.data.seq_len;
  run.ckpt = ckpt_config(values);
  run.log = {.interval = values.get_int("log.interval")};
  run.distributed = distributed_config(values);
  run.fuse = values.get_bool("ops.fuse");
  resolve_attention(run, attention, findings);
  check_run(run, node, machine, findings);
  run.unused = unused_data_keys(node, values, findings);
  findings.raise();
  if (machine == Machine::here) check_attention_layers(run);
  return run;
}

}  // namespace

RunConfig RunConfig::from(const Node& node, std::span<const AttentionKind> attention) {
  return read(node, attention, Machine::here);
}

RunConfig RunConfig::of_checkpoint(const Node& node) {
  return read(node, registered_attention(), Machine::any);
}

RunConfig with_micro_batch(const RunConfig& config, std::int64_t sequences) {
  Node node = config.resolved;
  node.set("train.micro_batch_size", Node::scalar(cat(sequences), Place()));
  RunConfig out = config;
  out.resolved = std::move(node);
  out.train.micro_batch_size = sequences;
  out.train.micro_batch_given = true;
  out.train.micro_batch_auto = false;
  return out;
}

std::int64_t RunConfig::planned_steps() const {
  if (train.max_tokens == 0) return train.max_steps;
  const std::int64_t by_tokens = (train.max_tokens - 1) / tokens_per_step() + 1;
  return train.max_steps == 0 ? by_tokens : std::min(train.max_steps, by_tokens);
}

std::string RunConfig::result_hash() const {
  return hash_of(result_node(*this), {});
}

std::string RunConfig::resume_hash() const {
  static constexpr std::array<std::string_view, 2> kLength = {"train.max_steps",
                                                              "train.max_tokens"};
  return hash_of(result_node(*this),
                 hangs_on_length() ? std::span<const std::string_view>() : kLength);
}

}  // namespace fovea::train
