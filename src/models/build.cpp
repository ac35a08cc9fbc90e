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
  const int width = config.rope.width == 0 ? config.head_width() : config.rope.width;
  require(width % 2 == 0 && width <= config.head_width(),
          cat("model.rope.width is ", width, ", but must be even and at most the head width ",
              config.head_width()));
}

void check(const ModelConfig& config) {
  require(config.kind == "decoder", cat("model.kind is ", config.kind, ", but must be decoder"));
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
          .causal = true,
          .cross = false,
          .position = position_of(config.position),
          .dropout = config.attention_dropout,
          .shared = shared};
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

std::unique_ptr<DecoderLm> build(const ModelConfig& config) {
  check(config);
  auto model = std::make_unique<DecoderLm>(config);
  model->set_path("");
  return model;
}

std::int64_t parameter_count(nn::Module& model) {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : model.parameters())
    count += parameter->shape.numel();
  return count;
}

TrainFlops train_flops(const DecoderLm& model, std::int64_t batch, std::int64_t length,
                       bool recompute) {
  const ModelConfig& config = model.config();
  nn::SharedParameters shared;
  attention::Cost sum;
  for (int layer = 0; layer < config.n_layer; ++layer) {
    const ModelConfig::AttentionChoice& choice = config.attention[static_cast<std::size_t>(layer)];
    const attention::Cost cost =
        attention::find_attention(choice.kind)
            ->cost(attention_config(config, layer, &shared), choice.options, length, length);
    sum.useful_forward += cost.useful_forward;
    sum.useful_backward += cost.useful_backward;
    sum.executed_forward += cost.executed_forward;
    sum.executed_backward += cost.executed_backward;
  }
  const double samples = static_cast<double>(batch), tokens = samples * static_cast<double>(length);
  const double products = 6 * static_cast<double>(model.matmul_parameters()) * tokens;
  TrainFlops out{.useful = products + samples * (sum.useful_forward + sum.useful_backward),
                 .executed = products + samples * (sum.executed_forward + sum.executed_backward)};
  if (recompute) {
    const std::int64_t head = static_cast<std::int64_t>(config.vocab_size) * config.n_embd;
    out.executed += 2 * static_cast<double>(model.matmul_parameters() - head) * tokens +
                    samples * sum.executed_forward;
  }
  return out;
}

}  // namespace fovea::models
