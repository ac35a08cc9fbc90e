// Loss and gradient norm of the first step of the reference trajectories, whose weights come in the
// Hugging Face layouts of GPT-2 and Llama: both styles are expressible exactly.

#include <cmath>
#include <fstream>

#include <doctest/doctest.h>

#include "data/safetensors.h"
#include "skip.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::ModelConfig;

namespace {

ModelConfig gpt2_case() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_embd = 48;
  config.block_size = 24;
  config.vocab_size = 97;
  return with_attention(config);
}

ModelConfig llama_case() {
  ModelConfig config = gpt2_case();
  config.n_head = 6;
  config.n_kv_head = 2;
  config.vocab_size = 89;
  config.norm = models::Norm::rms;
  config.norm_eps = 1e-6;
  config.mlp = models::Mlp::swiglu;
  config.mlp_dim = 80;
  config.position = models::Position::rope;
  config.bias = false;
  config.tie_embeddings = false;
  return with_attention(config);
}

// The tensors of our parameter, stacked along axis 0; `transposed` as Conv1D stores them.
struct Source {
  std::vector<std::string> names;
  bool transposed = false;
};

Source gpt2_source(const std::string& path) {
  if (!path.starts_with("blocks.")) {
    return {{"transformer." + (path.starts_with("norm_f") ? "ln_f" + path.substr(6) : path)}};
  }
  const std::string layer = "transformer.h." + path.substr(7, 1) + ".", name = path.substr(9);
  const std::string kind = name.substr(name.rfind('.'));
  const bool weight = kind == ".weight";
  if (name.starts_with("norm1")) return {{layer + "ln_1" + kind}};
  if (name.starts_with("norm2")) return {{layer + "ln_2" + kind}};
  if (name.starts_with("attn.qkv")) return {{layer + "attn.c_attn" + kind}, weight};
  if (name.starts_with("attn.proj")) return {{layer + "attn.c_proj" + kind}, weight};
  if (name.starts_with("mlp.fc")) return {{layer + "mlp.c_fc" + kind}, weight};
  return {{layer + "mlp.c_proj" + kind}, weight};
}

Source llama_source(const std::string& path) {
  if (path == "wte.weight") return {{"model.embed_tokens.weight"}};
  if (path == "norm_f.weight") return {{"model.norm.weight"}};
  if (path == "head.weight") return {{"lm_head.weight"}};
  const std::string layer = "model.layers." + path.substr(7, 1) + ".", name = path.substr(9);
  if (name == "norm1.weight") return {{layer + "input_layernorm.weight"}};
  if (name == "norm2.weight") return {{layer + "post_attention_layernorm.weight"}};
  if (name == "attn.qkv.weight") {
    return {{layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
             layer + "self_attn.v_proj.weight"}};
  }
  if (name == "attn.proj.weight") return {{layer + "self_attn.o_proj.weight"}};
  if (name == "mlp.gate_up.weight")
    return {{layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"}};
  return {{layer + "mlp.down_proj.weight"}};
}

void load(Lm& lm, const std::string& file, Source (*source_of)(const std::string&)) {
  const data::SafetensorsFile weights(file);
  for (nn::Parameter* p : lm.model->parameters()) {
    const Source source = source_of(p->path);
    std::int64_t row = 0;
    for (const std::string& name : source.names) {
      Tensor from = weights.read(name);
      if (source.transposed) from = from.permute({1, 0});
      const std::int64_t end = row + from.size(0);
      copy_host(p->master.slice(0, row, end).view(), from.view());
      row = end;
    }
    REQUIRE(row == p->shape[0]);
  }
}

struct Golden {
  Tensor inputs, targets;
};

Golden tokens_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<double> tokens;
  for (char two[2]; in.read(two, 2);) {
    tokens.push_back(static_cast<unsigned char>(two[0]) + 256 * static_cast<unsigned char>(two[1]));
  }
  REQUIRE(tokens.size() == 8 * 24 + 1);
  return {Tensor::from(std::span(tokens).first(192), {8, 24}, DType::i32),
          Tensor::from(std::span(tokens).last(192), {8, 24}, DType::i32)};
}

void check_first_step(const ModelConfig& config, const std::string& folder,
                      Source (*source_of)(const std::string&), double want_loss, double want_norm) {
  const Golden golden = tokens_of(folder + "/tokens.bin");
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    const double tolerance =
        precision == Precision::fp64 ? 1e-9 : 2e-5;  // the reference's own terms
    Lm lm(config, precision);
    load(lm, folder + "/model.safetensors", source_of);
    const double loss = lm.backward({.ids = golden.inputs}, golden.targets, 192);
    double square = 0;
    for (const double g : lm.grads.values())
      square += g * g;
    CHECK(std::abs(loss - want_loss) <= tolerance * want_loss);
    CHECK(std::abs(std::sqrt(square) - want_norm) <= tolerance * want_norm);
  }
}

}  // namespace

TEST_CASE("the GPT-2 reference's first loss and gradient norm are met") {
  const std::string folder = test_data("train-golden/gpt2_cosine");
  if (folder.empty()) FOVEA_SKIP("no shared test data");
  check_first_step(gpt2_case(), folder, gpt2_source, 4.737100834825871, 1.2303715545539569);
}

TEST_CASE("the Llama reference's first loss and gradient norm are met") {
  const std::string folder = test_data("train-golden/llama_inverse_sqrt");
  if (folder.empty()) FOVEA_SKIP("no shared test data");
  check_first_step(llama_case(), folder, llama_source, 4.703715083846449, 1.4325108059020581);
}
