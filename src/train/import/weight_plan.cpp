#include "train/import/weight_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/glob.h"
#include "core/text.h"

namespace fovea::train {

namespace {

using Shape64 = std::vector<std::int64_t>;

// Collects what a layer-by-layer walk puts into a plan.
class Planner {
 public:
  explicit Planner(std::string prefix) : prefix_(std::move(prefix)) {}

  WeightPlan plan;

  // One tensor as it is; a bias that the file does not have is zero.
  void same(const std::string& path, const std::string& name, Shape64 shape, bool bias = false) {
    plan.parts[path] = {{.name = prefix_ + name, .shape = std::move(shape), .optional = bias}};
  }
  // A matrix stored [in, out], and the bias of its layer.
  void conv1d(const std::string& path, const std::string& name, std::int64_t in, std::int64_t out,
              bool bias) {
    plan.parts[path + ".weight"] = {
        {.name = prefix_ + name + ".weight", .shape = {in, out}, .transposed = true}};
    if (bias) same(path + ".bias", name + ".bias", {out}, true);
  }
  // Matrices [out, in] one under the other, and the biases of their layers.
  void stacked(const std::string& path,
               const std::vector<std::pair<std::string, std::int64_t>>& layers, std::int64_t in,
               bool bias) {
    for (const auto& [name, out] : layers) {
      plan.parts[path + ".weight"].push_back(
          {.name = prefix_ + name + ".weight", .shape = {out, in}});
      if (!bias) continue;
      plan.parts[path + ".bias"].push_back(
          {.name = prefix_ + name + ".bias", .shape = {out}, .optional = true});
    }
  }

 private:
  std::string prefix_;
};

// The head has its name without the prefix, for it stands outside the inner model.
void add_head(const models::ModelConfig& m, WeightPlan& plan) {
  if (m.tie_embeddings) {
    plan.passed_over.emplace_back("lm_head.weight");
  } else {
    plan.parts["head.weight"] = {{.name = "lm_head.weight", .shape = {m.vocab_size, m.n_embd}}};
  }
}

// Names of one kind, cut where a hostile file would fill the screen.
class Wrong {
 public:
  void add(const std::string& line) {
    if (count_++ < kMost) lines_ += cat("\n  ", line);
  }
  void raise(const std::string& path) const {
    if (count_ == 0) return;
    throw CheckpointError(cat(path, ": does not fit its own description:", lines_,
                              count_ > kMost ? cat("\n  and ", count_ - kMost, " more") : ""));
  }

 private:
  static constexpr std::size_t kMost = 500;
  std::string lines_;
  std::size_t count_ = 0;
};

}  // namespace

WeightPlan gpt2_plan(const models::ModelConfig& m, const std::string& prefix) {
  Planner p(prefix);
  const std::int64_t width = m.n_embd, inner = m.mlp_width();
  p.same("wte.weight", "wte.weight", {m.vocab_size, width});
  p.same("wpe.weight", "wpe.weight", {m.block_size, width});
  const auto norm = [&](const std::string& path, const std::string& name) {
    p.same(path + ".weight", name + ".weight", {width});
    if (m.bias) p.same(path + ".bias", name + ".bias", {width}, true);
  };
  for (int i = 0; i < m.n_layer; ++i) {
    const std::string ours = cat("blocks.", i, "."), theirs = cat("h.", i, ".");
    norm(ours + "norm1", theirs + "ln_1");
    p.conv1d(ours + "attn.qkv", theirs + "attn.c_attn", width, 3 * width, m.bias);
    p.conv1d(ours + "attn.proj", theirs + "attn.c_proj", width, width, m.bias);
    norm(ours + "norm2", theirs + "ln_2");
    p.conv1d(ours + "mlp.fc", theirs + "mlp.c_fc", width, inner, m.bias);
    p.conv1d(ours + "mlp.proj", theirs + "mlp.c_proj", inner, width, m.bias);
  }
  norm("norm_f", "ln_f");
  add_head(m, p.plan);
  // The causal mask, which older files carry along.
  p.plan.passed_over.insert(p.plan.passed_over.end(), {"*h.*.attn.bias", "*h.*.attn.masked_bias"});
  return std::move(p.plan);
}

WeightPlan llama_plan(const models::ModelConfig& m, const std::string& prefix) {
  Planner p(prefix);
  const std::int64_t width = m.n_embd, inner = m.mlp_width(), head = m.head_width();
  const std::int64_t queries = m.n_head * head, keys = m.kv_heads() * head;
  p.same("wte.weight", "embed_tokens.weight", {m.vocab_size, width});
  for (int i = 0; i < m.n_layer; ++i) {
    const std::string ours = cat("blocks.", i, "."), theirs = cat("layers.", i, ".");
    const std::string attention = theirs + "self_attn.", mlp = theirs + "mlp.";
    p.same(ours + "norm1.weight", theirs + "input_layernorm.weight", {width});
    p.stacked(ours + "attn.qkv",
              {{attention + "q_proj", queries},
               {attention + "k_proj", keys},
               {attention + "v_proj", keys}},
              width, m.bias);
    if (m.qk_norm) {
      p.same(ours + "attn.q_norm.weight", attention + "q_norm.weight", {head});
      p.same(ours + "attn.k_norm.weight", attention + "k_norm.weight", {head});
    }
    p.stacked(ours + "attn.proj", {{attention + "o_proj", width}}, queries, m.bias);
    p.same(ours + "norm2.weight", theirs + "post_attention_layernorm.weight", {width});
    p.stacked(ours + "mlp.gate_up", {{mlp + "gate_proj", inner}, {mlp + "up_proj", inner}}, width,
              m.bias);
    p.stacked(ours + "mlp.proj", {{mlp + "down_proj", width}}, inner, m.bias);
  }
  p.same("norm_f.weight", "norm.weight", {width});
  add_head(m, p.plan);
  // The frequencies of the rotation, which older files carry along.
  p.plan.passed_over.emplace_back("*rotary_emb.inv_freq");
  return std::move(p.plan);
}

void check_plan(const WeightPlan& plan, const ForeignTensors& tensors, const std::string& path) {
  Wrong wrong;
  std::set<std::string_view> wanted;
  for (const auto& [parameter, parts] : plan.parts) {
    for (const WeightPart& part : parts) {
      wanted.insert(part.name);
      const auto found = tensors.find(part.name);
      if (found == tensors.end()) {
        if (!part.optional) wrong.add(cat("missing     ", part.name, " ", shape_text(part.shape)));
        continue;
      }
      if (found->second.shape != part.shape) {
        wrong.add(cat("mis-shaped  ", part.name, " ", shape_text(found->second.shape),
                      ", but must be ", shape_text(part.shape)));
      } else if (!is_float(found->second.dtype)) {
        wrong.add(cat("mis-typed   ", part.name, " ", name_of(found->second.dtype),
                      ", but must be floating-point"));
      }
    }
  }
  for (const auto& [name, tensor] : tensors) {
    const bool known =
        wanted.contains(name) ||
        std::any_of(plan.passed_over.begin(), plan.passed_over.end(),
                    [&, &text = name](const std::string& glob) { return glob_match(glob, text); });
    if (!known) wrong.add(cat("extra       ", name_text(name), " ", shape_text(tensor.shape)));
  }
  wrong.raise(path);
}

}  // namespace fovea::train
