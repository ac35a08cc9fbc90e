#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/tokenizer/tokenizer.h"
#include "foreign_model.h"
#include "models/generate.h"
#include "skip.h"
#include "train/evaluate.h"
#include "train/import/imported_model.h"
#include "train/import/json_node.h"

using namespace fovea;
using namespace fovea::test;
using namespace fovea::train;
namespace fs = std::filesystem;

namespace {

std::vector<std::int32_t> ids_of(const config::Node& node) {
  std::vector<std::int32_t> out;
  for (const config::Node& id : node.items())
    out.push_back(static_cast<std::int32_t>(id.as_int("id")));
  return out;
}

// Rows of a head's pairs (2t, 2t+1) brought into the order (t, t + width/2).
Tensor half_layout(const Tensor& rows, int heads) {
  const std::int64_t width = rows.size(0) / heads, in = rows.size(1);
  Tensor out = Tensor::empty(rows.shape(), DType::f32, kCpu);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t to = h * width + (i % 2) * (width / 2) + i / 2;
      std::memcpy(out.data<float>() + to * in, rows.data<float>() + (h * width + i) * in,
                  static_cast<std::size_t>(in) * sizeof(float));
    }
  }
  return out;
}

// A model whose attention method may have a parameter of its own.
class Toy final : public nn::Module {
 public:
  explicit Toy(bool with_method) {
    auto attention = std::make_unique<Part>();
    attention->make("weight", {2, 2});
    if (with_method) {
      auto method = std::make_unique<Part>();
      method->make("scale", {3});
      attention->put("method", std::move(method));
    }
    child("blocks.0.attn", std::move(attention));
    set_path("");
  }

 private:
  struct Part final : nn::Module {
    void make(const char* name, Shape shape) { own(name, shape, nn::Init::constant(0.5)); }
    void put(const char* name, std::unique_ptr<Part> part) { child(name, std::move(part)); }
  };
};

}  // namespace

TEST_CASE("tiny_gpt2 gives the reference's logits and hidden states") {
  const std::string folder = test_data("models/tiny_gpt2");
  if (folder.empty()) FOVEA_SKIP("the models data is not there");
  const ImportedModel from = import_model(folder);
  CHECK(from.layout == "Hugging Face gpt2");
  CHECK(from.config.tie_embeddings);
  CHECK(from.config.bias);
  Loaded loaded(from);
  const config::Node reference = read_json(folder + "/reference.json", 1 << 20);
  int compared = 0;
  for (const config::Node& one : reference.find("cases")->items()) {
    const std::vector<double> got = loaded.logits(ids_of(*one.find("ids")));
    std::size_t at = 0;
    for (const config::Node& row : one.find("logits")->items()) {
      for (const config::Node& value : row.items()) {
        REQUIRE(at < got.size());
        CHECK(std::fabs(got[at++] - value.as_number("logit")) < 1e-5);
        ++compared;
      }
    }
    CHECK(at == got.size());
  }
  CHECK(compared >= 2 * 21);
}

TEST_CASE("stories260K tells its published story") {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) FOVEA_SKIP("the models data is not there");
  const config::Node reference = read_json(folder + "/reference.json", 1 << 20);
  const std::vector<std::int32_t> expected = ids_of(*reference.find("ids"));
  std::string text = contents(folder + "/expected_greedy_200steps.txt");
  const auto tokenizer = data::open_tokenizer(folder + "/tok512.bin");
  const ImportedModel from = import_model(folder + "/stories260K.bin");
  CHECK(from.layout == "llama2.c");
  CHECK(from.config.tie_embeddings);
  Loaded loaded(from);
  const std::vector<std::vector<std::int32_t>> prompts{{expected.front()}};
  const auto got =
      models::greedy(loaded.ctx, *loaded.model, prompts, static_cast<int>(expected.size()) - 1);
  CHECK(got[0] == std::vector<std::int32_t>(expected.begin() + 1, expected.end()));
  CHECK(tokenizer->decode(got[0]) == text);
}

TEST_CASE("stories260K under Llama's names and in its rotary layout is the same model") {
  const std::string file = test_data("models/stories260K/stories260K.bin");
  if (file.empty()) FOVEA_SKIP("the models data is not there");
  const ImportedModel original = import_model(file);
  Foreign same;
  for (const auto& [name, tensor] : original.tensors) {
    const bool q = name.ends_with("q_proj.weight"), k = name.ends_with("k_proj.weight");
    same.set(name, q || k ? half_layout(tensor.read(), q ? 8 : 4) : tensor.read());
  }
  const TemporaryFolder folder;
  same.write(folder, R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 172,
    "max_position_embeddings": 512, "vocab_size": 512, "rms_norm_eps": 1e-05,
    "tie_word_embeddings": true})");
  const ImportedModel renamed = import_model(folder.path());
  CHECK(renamed.config.rope.interleaved == false);
  Loaded a(original, Precision::fp64), b(renamed, Precision::fp64);
  const std::vector<std::int32_t> ids{1, 403, 407, 261, 378, 432, 383};
  const std::vector<double> x = a.logits(ids), y = b.logits(ids);
  REQUIRE(x.size() == y.size());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::fabs(x[i] - y[i]));
  CHECK(worst < 1e-10);
  // Names without the prefix, as the inner model alone is saved.
  Foreign bare;
  for (const data::NamedTensor& tensor : same.named())
    bare.set(tensor.name.substr(std::string("model.").size()), tensor.tensor);
  bare.write(folder, contents(folder.path("config.json")));
  CHECK(Loaded(import_model(folder.path()), Precision::fp64).logits(ids) == y);
}

TEST_CASE("Conv1D matrices are transposed, and q, k and v stay one under the other") {
  const TemporaryFolder folder;
  const Foreign foreign = tiny_gpt2();
  foreign.write(folder, gpt2_json());
  Loaded loaded(import_model(folder.path()));
  const std::vector<double> theirs = foreign.at("h.0.attn.c_attn.weight").values();
  const std::vector<double> ours = loaded.parameter("blocks.0.attn.qkv.weight");
  REQUIRE(ours.size() == 48);
  for (std::size_t out = 0; out < 12; ++out) {
    for (std::size_t in = 0; in < 4; ++in)
      CHECK(ours[out * 4 + in] == theirs[in * 12 + out]);
  }
  CHECK(loaded.parameter("wpe.weight") == foreign.at("wpe.weight").values());
  CHECK(loaded.parameter("norm_f.bias") == foreign.at("ln_f.bias").values());
}

TEST_CASE("GPT-2 with the prefix, mask buffers and a repeated head is the same model") {
  const TemporaryFolder folder;
  tiny_gpt2().write(folder, gpt2_json());
  const std::vector<double> plain = Loaded(import_model(folder.path())).logits({1, 2, 3});
  Foreign more;
  for (const data::NamedTensor& tensor : tiny_gpt2().named())
    more.set("transformer." + tensor.name, tensor.tensor);
  more.add("transformer.h.0.attn.bias", {1, 1, 5, 5}, DType::u8);
  more.add("transformer.h.0.attn.masked_bias", {});
  more.set("lm_head.weight", more.at("transformer.wte.weight"));
  more.write(folder, gpt2_json(R"(, "tie_word_embeddings": true)"));
  const ImportedModel from = import_model(folder.path());
  CHECK(from.config.tie_embeddings);
  CHECK(Loaded(from).logits({1, 2, 3}) == plain);
}

TEST_CASE("a head of its own is untied, and a tied description contradicts it") {
  const TemporaryFolder folder;
  Foreign foreign = tiny_gpt2();
  foreign.add("lm_head.weight", {7, 4}).write(folder, gpt2_json());
  const ImportedModel from = import_model(folder.path());
  CHECK_FALSE(from.config.tie_embeddings);
  CHECK(Loaded(from).parameter("head.weight") == foreign.at("lm_head.weight").values());
  foreign.write(folder, gpt2_json(R"(, "tie_word_embeddings": true)"));
  check_refused(folder, "lm_head.weight and wte.weight differ, but tie_word_embeddings is true");
}

TEST_CASE("absent biases are zero, and without any the model has none") {
  const TemporaryFolder folder;
  tiny_gpt2(false).write(folder, gpt2_json());
  const ImportedModel none = import_model(folder.path());
  CHECK_FALSE(none.config.bias);
  const std::vector<double> plain = Loaded(none).logits({1, 2, 3});
  Foreign one = tiny_gpt2(false);
  one.set("ln_f.bias", Tensor::from(std::vector<double>(4), {4}, DType::f32));
  one.write(folder, gpt2_json());
  const ImportedModel some = import_model(folder.path());
  CHECK(some.config.bias);
  CHECK(Loaded(some).logits({1, 2, 3}) == plain);
}

TEST_CASE("Llama's q, k and v lie under one another, and so do gate and up") {
  const TemporaryFolder folder;
  const Foreign foreign = tiny_llama();
  foreign.write(folder, llama_json());
  const ImportedModel from = import_model(folder.path());
  CHECK(from.config.head_dim == 4);
  CHECK(from.config.kv_heads() == 2);
  CHECK(from.config.rope.base == 500000);
  CHECK(from.config.norm_eps == 1e-6);
  CHECK_FALSE(from.config.tie_embeddings);
  CHECK_FALSE(from.config.bias);
  Loaded loaded(from);
  const auto joined = [&](std::initializer_list<const char*> names) {
    std::vector<double> out;
    for (const char* name : names) {
      const std::vector<double> part = foreign.at(cat("model.layers.0.", name)).values();
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  };
  CHECK(loaded.parameter("blocks.0.attn.qkv.weight") ==
        joined({"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}));
  CHECK(loaded.parameter("blocks.0.mlp.gate_up.weight") ==
        joined({"mlp.gate_proj.weight", "mlp.up_proj.weight"}));
  CHECK(loaded.parameter("blocks.0.mlp.proj.weight") == joined({"mlp.down_proj.weight"}));
}

TEST_CASE("Qwen3 has its norms of queries and keys, and rope_parameters say what rope_theta did") {
  const TemporaryFolder folder;
  const Foreign foreign = tiny_llama(true);
  foreign.write(folder,
                llama_json(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
                  "sliding_window": 4096, "use_sliding_window": false,
                  "layer_types": ["full_attention"])",
                           "qwen3"));
  const ImportedModel from = import_model(folder.path());
  CHECK(from.config.qk_norm);
  CHECK(from.config.rope.base == 1e6);
  CHECK(Loaded(from).parameter("blocks.0.attn.k_norm.weight") ==
        foreign.at("model.layers.0.self_attn.k_norm.weight").values());
}

TEST_CASE("half precision, a shard index and a single file are the same weights") {
  const TemporaryFolder folder;
  tiny_llama().write(folder, llama_json());
  const std::vector<double> whole = Loaded(import_model(folder.path())).logits({1, 2, 3});
  CHECK(Loaded(import_model(folder.path("model.safetensors"))).logits({1, 2, 3}) == whole);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    Foreign other;
    for (const data::NamedTensor& tensor : tiny_llama().named())
      other.set(tensor.name, Tensor::from(tensor.tensor.values(), tensor.tensor.shape(), dtype));
    other.write(folder, llama_json());
    CHECK(Loaded(import_model(folder.path())).logits({1, 2, 3}) == whole);
  }
  fs::remove(folder.path("model.safetensors"));
  const std::vector<data::NamedTensor> all = tiny_llama().named();
  const std::size_t half = all.size() / 2;
  data::write_safetensors(folder.path("a.safetensors"), std::span(all).first(half));
  data::write_safetensors(folder.path("b.safetensors"), std::span(all).subspan(half));
  std::string map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    map +=
        cat(i > 0 ? "," : "", "\"", all[i].name, "\":\"", i < half ? "a" : "b", ".safetensors\"");
  }
  const std::string index = folder.path("model.safetensors.index.json");
  overwrite(index, "{\"metadata\": {}, \"weight_map\": {" + map + "}}");
  CHECK(Loaded(import_model(folder.path())).logits({1, 2, 3}) == whole);
  overwrite(index, R"({"weight_map": {"lm_head.weight": "../model.safetensors"}})");
  check_refused(folder, "must be a .safetensors file beside the index");
  overwrite(index, R"({"weight_map": {"nothing.weight": "a.safetensors"}})");
  check_refused(folder, "tensor \"nothing.weight\" is not in \"a.safetensors\" as it says");
}

TEST_CASE("a foreign model is evaluated as it is, with the tokenizer beside it") {
  const std::string model = test_data("models/tiny_gpt2");
  if (model.empty()) FOVEA_SKIP("the models data is not there");
  const TemporaryFolder folder;
  const std::string text = "lower newer wider lowest low";
  overwrite(folder.path("text.txt"), text);
  CHECK(is_foreign_model(model));
  CHECK_FALSE(is_foreign_model(folder.path()));
  const std::vector<std::string> overrides{"data.path=" + folder.path("text.txt"),
                                           "eval.prefix=false", "train.threads=1"};
  const EvaluateResult result = evaluate(model, overrides);
  const auto tokenizer = data::open_tokenizer(model);
  std::vector<std::int32_t> ids = tokenizer->encode(text);
  ids.push_back(*tokenizer->end_of_text());  // as every document ends
  REQUIRE(ids.size() > 4);
  const std::vector<double> logits = Loaded(import_model(model)).logits(ids);
  double nats = 0;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    double sum = 0;
    for (std::size_t v = 0; v < 21; ++v)
      sum += std::exp(logits[21 * t + v]);
    nats += std::log(sum) - logits[21 * t + static_cast<std::size_t>(ids[t + 1])];
  }
  REQUIRE(result.metrics[0].first == "loss");
  CHECK(std::fabs(result.metrics[0].second - nats / static_cast<double>(ids.size() - 1)) < 1e-5);
  CHECK(result.step == 0);
}

TEST_CASE("an attention method's own parameters stay as initialised where the source has none") {
  log::console(false);
  ImportedModel from;
  from.path = "elsewhere";
  const std::string name = "blocks.0.attn.weight";
  from.tensors[name] = {{2, 2}, DType::f32, [] {
                          return Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}, DType::f32);
                        }};
  from.plan.parts[name] = {{.name = name, .shape = {2, 2}}};
  Stream stream(kCpu, 1);
  CachingAllocator activations(memory_source(kCpu));
  Ctx ctx{kCpu, stream, activations};
  ctx.precision = Precision::bf16_mixed;
  Toy with(true), without(false);
  optim::ParameterStore store(ctx, with, optim::StoreMode::evaluate),
      other(ctx, without, optim::StoreMode::evaluate);
  load_weights(from, ctx, with, store);
  CHECK(with.parameters()[0]->master.values() == std::vector<double>{1, 2, 3, 4});
  CHECK(with.parameters()[0]->compute.values() == std::vector<double>{1, 2, 3, 4});
  CHECK(with.parameters()[1]->master.values() == std::vector<double>{0.5, 0.5, 0.5});
  // The way back: a source with such parameters, a method without.
  from.plan.parts["blocks.0.attn.method.scale"] = {{.name = "scale", .shape = {3}}};
  CHECK_NOTHROW(load_weights(from, ctx, without, other));
  from.plan.parts["blocks.0.mlp.weight"] = {{.name = "x", .shape = {3}}};
  CHECK_THROWS_WITH_AS(load_weights(from, ctx, without, other),
                       "elsewhere: is of another model:\n  extra       blocks.0.mlp.weight",
                       CheckpointError);
}
