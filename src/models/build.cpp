#include "models/build.h"

#include <cmath>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::models {

namespace {

attention::Position position_of(Position position) {
  switch (position) {
    case Position::none:
      return attention::Position::none;
    case Position::sinusoidal:
      return attention::Position::sinusoidal;
    case Position::learned:
      return attention::Position::learned;
    case Position::rope:
      return attention::Position::rope;
    case Position::alibi:
      return attention::Position::alibi;
  }
  return attention::Position::none;
}

void require(bool holds, const std::string& message) {
  if (!holds) throw ConfigError(message);
}

void check_rope(const ModelConfig& config) {
  const int width = config.rope.width, head = config.head_width();
  require(width != 0 || head % 2 == 0,
          cat("the width of a head is ", head,
              " (model.head_dim, else model.n_embd / model.n_head), but must be even: "
              "model.position is rope"));
  require(
      width % 2 == 0 && width <= head,
      cat("model.rope.width is ", width, ", but must be even and at most the head width ", head));
}

void check(const ModelConfig& config, const char* kind) {
  require(config.kind == kind, cat("model.kind is ", config.kind, ", but must be ", kind));
  require(config.vocab_size > 0, "model.vocab_size is 0: it comes from the data or the file");
  require(config.n_layer > 0 && config.n_head > 0 && config.n_embd > 0 && config.block_size > 0,
          "model: n_layer, n_head, n_embd and block_size must be positive");
  require(config.head_dim != 0 || config.n_embd % config.n_head == 0,
          cat("model.n_embd is ", config.n_embd, ", but must be a multiple of model.n_head ",
              config.n_head, ", or give model.head_dim"));
  require(config.n_head % config.kv_heads() == 0,
          cat("model.n_kv_head is ", config.kv_heads(), ", but must divide model.n_head ",
              config.n_head));
  require(config.attention.size() == static_cast<std::size_t>(config.n_layer),
          cat("model.attention: ", config.attention.size(), " choices for ", config.n_layer,
              " layers"));
  if (config.position == Position::rope) check_rope(config);
}

// `head`: multiply-adds of the head's one product, forward.
TrainFlops stack_flops(const Transformer& model, std::int64_t batch, std::int64_t length,
                       double head, bool recompute) {
  const ModelConfig& config = model.config();
  nn::SharedParameters shared;
  attention::Cost sum;
  for (int layer = 0; layer < config.n_layer; ++layer) {
    const ModelConfig::AttentionChoice& choice = config.attention[static_cast<std::size_t>(layer)];
    attention::AttentionConfig own = attention_config(config, layer, &shared);
    own.folded = model.block(layer).attention().folds();
    sum += attention_spec(choice).cost(own, choice.options, length, length);
  }
  const auto samples = static_cast<double>(batch);
  const double blocks =
      static_cast<double>(model.block_parameters()) * samples * static_cast<double>(length);
  const double products = 6 * (blocks + head);
  TrainFlops out{.useful = products + samples * (sum.useful_forward + sum.useful_backward),
                 .executed = products + samples * (sum.executed_forward + sum.executed_backward)};
  if (recompute) out.executed += 2 * blocks + samples * sum.executed_forward;
  return out;
}

}  // namespace

attention::AttentionConfig attention_config(const ModelConfig& config, int layer,
                                            nn::SharedParameters* shared) {
  return {.n_embd = config.n_embd,
          .n_head = config.n_head,
          .n_kv_head = config.kv_heads(),
          .qk_dim = config.head_width(),
          .v_dim = config.head_width(),
          .max_len = config.block_size,
          .layer = layer,
          .n_layer = config.n_layer,
          .causal = config.causal(),
          .cross = false,
          .position = position_of(config.position),
          .dropout = config.attention_dropout,
          .shared = shared,
          .packed = config.packed};
}

BlockConfig block_config(const ModelConfig& config, int layer, nn::SharedParameters* shared) {
  const double proj_std = config.init_std / std::sqrt(2.0 * config.n_layer);
  return {.attention = {.attention = attention_config(config, layer, shared),
                        .bias = config.bias,
                        .qk_norm = config.qk_norm,
                        .norm_eps = config.norm_eps,
                        .rope = {.base = config.rope.base,
                                 .interleaved = config.rope.interleaved,
                                 .width = config.rope.width},
                        .init_std = config.init_std,
                        .proj_std = proj_std},
          .norm = {.kind = config.norm == Norm::layer ? nn::NormConfig::Kind::layer
                                                      : nn::NormConfig::Kind::rms,
                   .eps = config.norm_eps,
                   .bias = config.bias},
          .mlp = {.kind = config.mlp == Mlp::gelu ? nn::MlpConfig::Kind::gelu
                                                  : nn::MlpConfig::Kind::swiglu,
                  .width = config.n_embd,
                  .hidden = config.mlp_width(),
                  .bias = config.bias,
                  .init_std = config.init_std,
                  .proj_std = proj_std},
          .dropout = config.dropout};
}

const attention::AttentionSpec& attention_spec(const ModelConfig::AttentionChoice& choice) {
  if (choice.spec != nullptr) return *choice.spec;
  if (const attention::AttentionSpec* spec = attention::find_attention(choice.kind)) return *spec;
  std::vector<std::string> names;
  for (const attention::AttentionSpec& spec : attention::attention_specs()) {
    names.emplace_back(spec.name);
  }
  const std::string near = nearest(choice.kind, names);
  throw ConfigError(cat(
      "model.attention.kind: there is no '", choice.kind, "'",
      near.empty() ? cat("; known: ", join(names, ", ")) : cat("; the nearest is '", near, "'")));
}

std::unique_ptr<DecoderLm> build(const ModelConfig& config) {
  check(config, "decoder");
  auto model = std::make_unique<DecoderLm>(config);
  model->set_path("");
  return model;
}

std::unique_ptr<Encoder> build_encoder(const ModelConfig& config) {
  check(config, "encoder");
  require(config.classes > 0, "model.classes is 0: it comes from the data or the file");
  auto model = std::make_unique<Encoder>(config);
  model->set_path("");
  return model;
}

std::int64_t parameter_count(nn::Module& model) {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : model.parameters())
    count += parameter->tally ? 0 : parameter->shape.numel();
  return count;
}

TrainFlops train_flops(const DecoderLm& model, std::int64_t batch, std::int64_t length,
                       bool recompute) {
  const double head = static_cast<double>(model.matmul_parameters() - model.block_parameters());
  return stack_flops(model, batch, length, head * static_cast<double>(batch * length), recompute);
}

TrainFlops train_flops(const Encoder& model, std::int64_t batch, std::int64_t length,
                       bool recompute) {
  const double head = static_cast<double>(model.head_parameters());
  return stack_flops(model, batch, length, head * static_cast<double>(batch), recompute);
}

}  // namespace fovea::models
