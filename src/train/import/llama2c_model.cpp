#include "train/import/llama2c_model.h"

#include <array>
#include <bit>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "train/import/hub_config.h"

namespace fovea::train {

static_assert(std::endian::native == std::endian::little, "numbers are read as they are stored");

namespace {

constexpr std::int32_t kVersionMagic = 0x616b3432;  // "ak42" begins every later version

struct Header {
  std::int32_t width, hidden, layers, heads, kv_heads, vocab, length;
};

models::ModelConfig model_of(const Header& h, const std::string& path) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw CheckpointError(cat(path, ": as a llama2.c model, ", what));
  };
  const auto in = [&](const char* name, std::int32_t value, std::int32_t most) {
    require(value >= 1 && value <= most,
            cat(name, " is ", value, ", but must be in [1, ", most, "]"));
  };
  in("the width", h.width, 65536);
  in("the hidden width", h.hidden, 1048576);
  in("the number of layers", h.layers, 1024);
  in("the number of heads", h.heads, 1024);
  in("the number of key and value heads", h.kv_heads, 1024);
  in("the longest sequence", h.length, 1048576);
  constexpr std::int32_t kMostIds = 16777216;
  require(h.vocab != 0 && h.vocab >= -kMostIds && h.vocab <= kMostIds,
          cat("the vocabulary is ", h.vocab, ", but must be in [1, ", kMostIds, "] or minus that"));
  require(h.width % h.heads == 0,
          cat("the width ", h.width, " is not divisible by ", h.heads, " heads"));
  require(h.heads % h.kv_heads == 0,
          cat(h.heads, " heads are not divisible by ", h.kv_heads, " key and value heads"));
  require(h.width / h.heads % 2 == 0,
          cat("the head width ", h.width / h.heads, " is odd, which rotation cannot be"));
  models::ModelConfig m;
  m.n_layer = h.layers;
  m.n_head = h.heads;
  m.n_kv_head = h.kv_heads;
  m.n_embd = h.width;
  m.head_dim = h.width / h.heads;
  m.block_size = h.length;
  m.vocab_size = h.vocab < 0 ? -h.vocab : h.vocab;
  m.norm = models::Norm::rms;
  m.norm_eps = 1e-5;
  m.mlp = models::Mlp::swiglu;
  m.mlp_dim = h.hidden;
  m.position = models::Position::rope;
  m.rope.interleaved = true;
  m.bias = false;
  m.tie_embeddings = h.vocab > 0;
  m.attention = standard_attention(h.layers);
  return m;
}

// Walks the file from tensor to tensor.
class Walk {
 public:
  Walk(std::shared_ptr<const InputFile> file, ForeignTensors& into)
      : file_(std::move(file)), into_(into) {}

  void one(const std::string& name, const std::vector<std::int64_t>& shape) {
    Shape sizes;
    for (const std::int64_t size : shape)
      sizes.push_back(size);
    into_.emplace(name, ForeignTensor{shape, DType::f32, [file = file_, at = at_, sizes] {
                                        Tensor out =
                                            Tensor::empty(sizes, DType::f32, kCpu, "llama2.c");
                                        file->read_at(at, out.data<char>(),
                                                      static_cast<std::size_t>(out.bytes()));
                                        return out;
                                      }});
    pass(sizes.numel());
  }
  void each_layer(int layers, const char* name, const std::vector<std::int64_t>& shape) {
    for (int i = 0; i < layers; ++i)
      one(cat("model.layers.", i, ".", name, ".weight"), shape);
  }
  void pass(std::int64_t numbers) { at_ += static_cast<std::uint64_t>(numbers) * sizeof(float); }
  std::uint64_t at() const { return at_; }

 private:
  std::shared_ptr<const InputFile> file_;
  ForeignTensors& into_;
  std::uint64_t at_ = sizeof(Header);
};

}  // namespace

Llama2cModel open_llama2c(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(path);
  Header header{};
  if (file->size() < sizeof header) {
    throw CheckpointError(cat(path, ": has ", file->size(), " bytes, too few for a model"));
  }
  file->read_at(0, &header, sizeof header);
  if (header.width == kVersionMagic) {
    throw CheckpointError(cat(path, ": is a llama2.c model of version ", header.hidden,
                              ", but only version 0 is read"));
  }
  Llama2cModel out;
  out.model = model_of(header, path);
  const models::ModelConfig& m = out.model;
  const std::int64_t width = m.n_embd, hidden = m.mlp_dim,
                     keys = std::int64_t{m.n_kv_head} * m.head_dim;
  Walk walk(file, out.tensors);
  walk.one("model.embed_tokens.weight", {m.vocab_size, width});
  walk.each_layer(m.n_layer, "input_layernorm", {width});
  walk.each_layer(m.n_layer, "self_attn.q_proj", {width, width});
  walk.each_layer(m.n_layer, "self_attn.k_proj", {keys, width});
  walk.each_layer(m.n_layer, "self_attn.v_proj", {keys, width});
  walk.each_layer(m.n_layer, "self_attn.o_proj", {width, width});
  walk.each_layer(m.n_layer, "post_attention_layernorm", {width});
  walk.each_layer(m.n_layer, "mlp.gate_proj", {hidden, width});
  walk.each_layer(m.n_layer, "mlp.down_proj", {width, hidden});
  walk.each_layer(m.n_layer, "mlp.up_proj", {hidden, width});
  walk.one("model.norm.weight", {width});
  // The sines and cosines of the rotation, which we compute.
  walk.pass(std::int64_t{m.block_size} * m.head_dim);
  if (!m.tie_embeddings) walk.one("lm_head.weight", {m.vocab_size, width});
  if (file->size() != walk.at()) {
    throw CheckpointError(cat(path, ": has ", file->size(),
                              " bytes, but a llama2.c model of width ", width, ", ", m.n_layer,
                              " layers and ", m.vocab_size, " token ids has ", walk.at()));
  }
  return out;
}

}  // namespace fovea::train
