#include "study/attention_runner.h"

#include <algorithm>
#include <utility>

#include "config/option.h"

namespace fovea::study {

namespace {

using attention::AttentionInput;

constexpr std::pair<std::string_view, Var AttentionInput::*> kSlots[] = {
    {"q", &AttentionInput::q},
    {"k", &AttentionInput::k},
    {"v", &AttentionInput::v},
    {"q_global", &AttentionInput::q_global},
    {"k_global", &AttentionInput::k_global},
    {"v_global", &AttentionInput::v_global}};

// Columns [from, to) of tokens [B,N,*] as heads.
Tensor heads_of(const Tensor& tokens, std::int64_t from, std::int64_t to, std::int64_t width) {
  return tokens.slice(2, from, to).split_axis(2, width).permute({0, 2, 1, 3});
}

attention::AttentionConfig as_made(const attention::AttentionSpec& spec, const AttentionSize& size,
                                   const config::Node& options) {
  const config::Node completed = config::complete(options, spec.options, "model.attention");
  return attention::as_projected(spec, config_of(size), completed);
}

}  // namespace

attention::AttentionConfig config_of(const AttentionSize& size) {
  attention::AttentionConfig out;
  out.n_embd = size.heads * size.v_dim;
  out.n_head = size.heads;
  out.n_kv_head = size.kv_heads;
  out.qk_dim = size.qk_dim;
  out.v_dim = size.v_dim;
  out.max_len = static_cast<int>(std::max(size.queries, size.keys));
  out.causal = size.causal;
  out.cross = size.queries != size.keys;
  return out;
}

AttentionRunner::AttentionRunner(const attention::AttentionSpec& spec, const config::Node& options,
                                 const AttentionSize& size, Precision precision, Stream& stream,
                                 const Make& make)
    : alone_(spec, as_made(spec, size, options), options, precision, stream.device()),
      memory_(memory_source(stream.device())),
      ctx_{.device = stream.device(), .stream = stream, .activations = memory_} {
  ctx_.training = true;
  ctx_.precision = precision;
  ctx_.seed = 1;
  const config::Node completed = config::complete(options, spec.options, "model.attention");
  make_inputs(attention::projections_of(spec, config_of(size), completed), size, make);
  alone_.want_gradients();
  alone_.method().before_step(ctx_, nn::Clock{});
}

void AttentionRunner::make_inputs(const std::vector<attention::ProjectionSpec>& projections,
                                  const AttentionSize& size, const Make& make) {
  struct Part {
    std::int64_t from, to, width;
  };
  std::vector<Part> parts;
  std::int64_t packed = 0, out_width = size.v_dim;
  for (const attention::ProjectionSpec& p : projections) {
    if (p.name == "v") out_width = p.width;
    for (const auto& [name, into] : kSlots) {
      if (name != p.name) continue;
      const std::int64_t wide = std::int64_t{p.heads} * p.width;
      slots_.push_back({name, into, {}});
      parts.push_back({packed, packed + wide, p.width});
      packed += wide;
    }
  }
  const bool together = size.queries == size.keys;
  const Tensor all = together ? make("qkv", {size.batch, size.queries, packed}) : Tensor();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto [from, to, width] = parts[i];
    if (together) {
      slots_[i].value = heads_of(all, from, to, width);
      continue;
    }
    const std::int64_t tokens = slots_[i].name.starts_with("q") ? size.queries : size.keys;
    const Tensor own = make(std::string(slots_[i].name), {size.batch, tokens, to - from});
    slots_[i].value = heads_of(own, 0, to - from, width);
  }
  x_ = make("x", {size.batch, size.queries, std::int64_t{size.heads} * size.v_dim});
  // Values may be narrower than the model's heads, and outputs are as wide as they.
  const std::int64_t merged = std::int64_t{size.heads} * out_width;
  dout_ = heads_of(make("dout", {size.batch, size.queries, merged}), 0, merged, out_width);
}

void AttentionRunner::forward(bool record) {
  tape_.clear();
  out_ = {};
  in_ = {};
  const auto var = [record](const Tensor& x) { return record ? leaf(x) : Var(x); };
  for (const Slot& slot : slots_)
    in_.*slot.into = var(slot.value);
  in_.x = var(x_);
  in_.q_unrotated = in_.q;
  in_.k_unrotated = in_.k;
  ctx_.tape = record ? &tape_ : nullptr;
  out_ = alone_.method().forward(ctx_, in_);
}

void AttentionRunner::backward() {
  tape_.backward(ctx_, out_.o, dout_);
}

std::size_t AttentionRunner::peak_bytes() {
  out_ = {};
  in_ = {};
  memory_.reset_peak();
  forward(true);
  backward();
  return memory_.stats().peak;
}

Tensor AttentionRunner::gradient(std::string_view name) const {
  for (const Slot& slot : slots_) {
    if (slot.name == name) return (in_.*slot.into).grad()->value;
  }
  return {};
}

}  // namespace fovea::study
