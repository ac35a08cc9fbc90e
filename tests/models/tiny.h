#pragma once
// Two tiny language models, GPT-2 style and Llama style, with everything a test needs around them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.h"
#include "autograd/tape.h"
#include "config/option.h"
#include "core/error.h"
#include "models/build.h"
#include "optim/parameter_store.h"

namespace fovea::test {

inline models::ModelConfig with_attention(models::ModelConfig config,
                                          const std::string& kind = "standard") {
  const attention::AttentionSpec* spec = attention::find_attention(kind);
  const config::Node options = config::complete(config::Node(), spec->options, "model.attention");
  config.attention.assign(static_cast<std::size_t>(config.n_layer), {kind, options});
  return config;
}

inline models::ModelConfig gpt2_style() {
  models::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 12;
  config.block_size = 16;
  config.vocab_size = 11;
  config.init_std = 0.3;  // far from the flat start of training: every path carries gradient
  return with_attention(config);
}

inline models::ModelConfig llama_style() {
  models::ModelConfig config = gpt2_style();
  config.n_head = 4;
  config.n_kv_head = 2;
  config.head_dim = 4;
  config.norm = models::Norm::rms;
  config.norm_eps = 1e-6;
  config.mlp = models::Mlp::swiglu;
  config.mlp_dim = 20;
  config.position = models::Position::rope;
  config.qk_norm = true;
  config.bias = false;
  config.tie_embeddings = false;
  return with_attention(config);
}

inline models::ModelConfig alibi_style() {
  models::ModelConfig config = gpt2_style();
  config.position = models::Position::alibi;
  return config;
}

inline models::ModelConfig encoder_style(models::Pooling pool = models::Pooling::mean) {
  models::ModelConfig config = gpt2_style();
  config.kind = "encoder";
  config.pool = pool;
  config.classes = 3;
  return config;
}

// A context of its own.
struct World {
  explicit World(Precision precision = Precision::fp32, Device device = kCpu, int threads = 1)
      : stream(device, threads),
        pool(memory_source(device)),
        guard(pool),
        ctx{.device = device,
            .stream = stream,
            .activations = device.is_meta() ? static_cast<Allocator&>(pool) : guard,
            .at = &at,
            .precision = precision,
            .seed = 17} {}
  StepState at;
  Stream stream;
  CachingAllocator pool;
  GuardAllocator guard;  // a write past a tensor's end aborts
  Ctx ctx;
};

// A model with parameters and a bound gradient buffer.
template <class Model>
struct Bound : World {
  explicit Bound(std::unique_ptr<Model> made, Precision precision = Precision::fp32,
                 std::vector<std::string> frozen = {}, Device device = kCpu, int threads = 1)
      : World(precision, device, threads),
        model(std::move(made)),
        store(ctx, *model, optim::StoreMode::train, {}, frozen),
        grads(Tensor::empty({store.elements()}, state_dtype(precision), device)) {
    store.bind_gradients(grads);
  }

  // Loss and, in `grads`, its gradient: of the mean over `count` targets.
  double backward(const models::TransformerInput& in, const Tensor& targets, double count) {
    const DType state = state_dtype(ctx.precision);
    copy_host(grads.view(),
              Tensor::from(std::vector<double>(static_cast<std::size_t>(grads.numel())),
                           grads.shape(), state)
                  .view());
    Tape tape;
    ctx.tape = &tape;
    ctx.training = true;
    const auto loss = model->loss(ctx, in, targets);
    tape.backward(ctx, loss.sum, Tensor::from({{1 / count}}, {}, state));
    ctx.tape = nullptr;
    ctx.training = false;
    return loss.sum.value().item() / count;
  }
  double loss(const models::TransformerInput& in, const Tensor& targets) {
    return model->loss(ctx, in, targets).sum.value().item();
  }
  nn::Parameter& parameter(const std::string& path) {
    for (nn::Parameter* p : model->parameters()) {
      if (p->path == path) return *p;
    }
    throw ConfigError("no parameter " + path);
  }

  std::unique_ptr<Model> model;
  optim::ParameterStore store;
  Tensor grads;
};

struct Lm : Bound<models::DecoderLm> {
  explicit Lm(const models::ModelConfig& config, Precision precision = Precision::fp32,
              std::vector<std::string> frozen = {}, Device device = kCpu, int threads = 1)
      : Bound(models::build(config), precision, std::move(frozen), device, threads) {}
};

struct Classifier : Bound<models::Encoder> {
  explicit Classifier(const models::ModelConfig& config, Precision precision = Precision::fp32)
      : Bound(models::build_encoder(config), precision) {}
};

// ids in [0, vocabulary), by a fixed rule.
inline Tensor ids(std::int64_t batch, std::int64_t n, int vocabulary, int salt = 0) {
  Tensor out = Tensor::empty({batch, n}, DType::i32, kCpu);
  for (std::int64_t i = 0; i < batch * n; ++i) {
    out.data<std::int32_t>()[i] =
        static_cast<std::int32_t>((i * i * 7 + i * 3 + salt) % vocabulary);
  }
  return out;
}

}  // namespace fovea::test
