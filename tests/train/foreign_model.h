#pragma once
// Models of other programs, made up small enough for a test, and what becomes of them here.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "models/build.h"
#include "temporary.h"
#include "train/import/imported_model.h"

namespace fovea::test {

// A model on its own, ready to compute.
struct Loaded {
  explicit Loaded(const train::ImportedModel& from, Precision precision = Precision::fp32) {
    ctx.precision = precision;
    model = models::build(from.config);
    store = std::make_unique<optim::ParameterStore>(ctx, *model, optim::StoreMode::evaluate);
    train::load_weights(from, ctx, *model, *store);
  }
  std::vector<double> logits(const std::vector<std::int32_t>& ids) {
    Tensor in = Tensor::empty({1, static_cast<std::int64_t>(ids.size())}, DType::i32, kCpu);
    std::copy(ids.begin(), ids.end(), in.data<std::int32_t>());
    return model->logits(ctx, {.ids = in}).value().values();
  }
  std::vector<double> parameter(const std::string& path) {
    std::vector<double> out;
    model->each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (name == path) out = p.master.values();
    });
    return out;
  }
  Stream stream{kCpu, 1};
  CachingAllocator activations{memory_source(kCpu)};
  Ctx ctx{kCpu, stream, activations};
  std::unique_ptr<models::DecoderLm> model;
  std::unique_ptr<optim::ParameterStore> store;
};

// A model of another program, made up: every tensor has values of its own.
class Foreign {
 public:
  Foreign& add(const std::string& name, Shape shape, DType dtype = DType::f32) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    double next = static_cast<double>(std::hash<std::string>()(name) % 64) / 64;
    // Few bits, so that every dtype holds them exactly.
    for (double& value : values)
      value = (next = std::fmod(next + 37.0 / 64, 1.0)) - 0.5;
    tensors_[name] = Tensor::from(values, shape, dtype);
    return *this;
  }
  Foreign& set(const std::string& name, const Tensor& tensor) {
    tensors_[name] = tensor;
    return *this;
  }
  Foreign& drop(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  const Tensor& at(const std::string& name) const { return tensors_.at(name); }
  std::vector<data::NamedTensor> named() const {
    std::vector<data::NamedTensor> out;
    for (const auto& [name, tensor] : tensors_)
      out.push_back({name, tensor});
    return out;
  }
  void write(const TemporaryFolder& folder, const std::string& config) const {
    overwrite(folder.path("config.json"), config);
    data::write_safetensors(folder.path("model.safetensors"), named());
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

inline Foreign tiny_llama(bool qk_norm = false, const std::string& prefix = "model.") {
  Foreign out;
  out.add(prefix + "embed_tokens.weight", {11, 8}).add(prefix + "norm.weight", {8});
  out.add("lm_head.weight", {11, 8});
  const std::string layer = prefix + "layers.0.";
  out.add(layer + "input_layernorm.weight", {8})
      .add(layer + "post_attention_layernorm.weight", {8});
  out.add(layer + "self_attn.q_proj.weight", {16, 8})
      .add(layer + "self_attn.k_proj.weight", {8, 8});
  out.add(layer + "self_attn.v_proj.weight", {8, 8})
      .add(layer + "self_attn.o_proj.weight", {8, 16});
  out.add(layer + "mlp.gate_proj.weight", {12, 8}).add(layer + "mlp.up_proj.weight", {12, 8});
  out.add(layer + "mlp.down_proj.weight", {8, 12});
  if (qk_norm) {
    out.add(layer + "self_attn.q_norm.weight", {4}).add(layer + "self_attn.k_norm.weight", {4});
  }
  return out;
}

inline std::string llama_json(const std::string& more = "", const std::string& type = "llama") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 12,
    "max_position_embeddings": 32, "vocab_size": 11, "rms_norm_eps": 1e-06, "rope_theta": 500000.0,
    "hidden_act": "silu", "torch_dtype": "bfloat16", "rope_scaling": null)" +
         more + "}";
}

inline Foreign tiny_gpt2(bool bias = true, const std::string& prefix = "") {
  Foreign out;
  out.add(prefix + "wte.weight", {7, 4}).add(prefix + "wpe.weight", {5, 4});
  out.add(prefix + "ln_f.weight", {4});
  const std::string layer = prefix + "h.0.";
  const std::pair<const char*, Shape> matrices[] = {{"attn.c_attn", {4, 12}},
                                                    {"attn.c_proj", {4, 4}},
                                                    {"mlp.c_fc", {4, 16}},
                                                    {"mlp.c_proj", {16, 4}}};
  for (const auto& [name, shape] : matrices) {
    out.add(layer + name + ".weight", shape);
    if (bias) out.add(layer + name + ".bias", {shape[1]});
  }
  for (const char* norm : {"ln_1", "ln_2"}) {
    out.add(layer + norm + ".weight", {4});
    if (bias) out.add(layer + norm + ".bias", {4});
  }
  if (bias) out.add(prefix + "ln_f.bias", {4});
  return out;
}

inline std::string gpt2_json(const std::string& more = "") {
  return R"({"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 4, "n_positions": 5,
    "vocab_size": 7, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
    "attn_pdrop": 0.1, "n_inner": null)" +
         more + "}";
}

inline void check_refused(const TemporaryFolder& folder, const std::string& what) {
  INFO(what);
  CHECK_THROWS_WITH_AS(train::import_model(folder.path()), doctest::Contains(what.c_str()),
                       CheckpointError);
}

}  // namespace fovea::test
