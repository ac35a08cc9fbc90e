#include "models/multi_head_attention.h"

#include <algorithm>
#include <array>
#include <string>

#include "attention/registry.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::models {

namespace {

using attention::AttentionInput;
using attention::ProjectionSpec;

struct Slot {
  std::string_view name;
  Var AttentionInput::*into;
};

constexpr std::array kSlots{
    Slot{"q", &AttentionInput::q},
    Slot{"k", &AttentionInput::k},
    Slot{"v", &AttentionInput::v},
    Slot{"q_global", &AttentionInput::q_global},
    Slot{"k_global", &AttentionInput::k_global},
    Slot{"v_global", &AttentionInput::v_global},
};

// Not products of their own: q and k as they were before rotation.
constexpr std::array kUnrotated{
    Slot{"q_unrotated", &AttentionInput::q_unrotated},
    Slot{"k_unrotated", &AttentionInput::k_unrotated},
};

template <std::size_t N>
Var AttentionInput::*find_slot(const std::array<Slot, N>& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.name == name) return slot.into;
  }
  return nullptr;
}

// The widths that the method's heads have once they are projected.
attention::AttentionConfig as_projected(attention::AttentionConfig config,
                                        const std::vector<ProjectionSpec>& listed) {
  for (const ProjectionSpec& p : listed) {
    if (p.name == "q") config.qk_dim = p.width;
    if (p.name == "v") config.v_dim = p.width;
  }
  return config;
}

void check_rotation(const attention::AttentionSpec& spec, const Rope& rope,
                    const ProjectionSpec& projection) {
  const int width = rope.width > 0 ? rope.width : projection.width;
  if (width % 2 == 0 && width <= projection.width) return;
  throw ConfigError(cat("model.rope.width is ", width, ", but must be even and at most ",
                        projection.width, ", the width of ", projection.name, " of attention ",
                        spec.name));
}

}  // namespace

std::vector<ProjectionSpec> projections_of(const attention::AttentionSpec& spec,
                                           const attention::AttentionConfig& config,
                                           const config::Node& options) {
  if (spec.projections != nullptr) return spec.projections(config, options);
  return {
      {.name = "q", .heads = config.n_head, .width = config.qk_dim, .rope = true, .qk_norm = true},
      {.name = "k",
       .heads = config.n_kv_head,
       .width = config.qk_dim,
       .rope = true,
       .qk_norm = true},
      {.name = "v", .heads = config.n_kv_head, .width = config.v_dim},
  };
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config,
                                       const attention::AttentionSpec& spec,
                                       const config::Node& options)
    : config_(config) {
  const std::vector<ProjectionSpec> listed = projections_of(spec, config.attention, options);
  const attention::AttentionConfig shape = as_projected(config.attention, listed);
  std::int64_t packed = 0;
  for (const ProjectionSpec& p : listed) {
    if (find_slot(kUnrotated, p.name) != nullptr) continue;
    Var AttentionInput::*const into = find_slot(kSlots, p.name);
    if (into == nullptr) {
      throw ConfigError(cat("attention ", spec.name, ": there is no projection called ", p.name));
    }
    const std::string raw = cat(p.name, "_unrotated");
    const bool wants_raw =
        std::any_of(listed.begin(), listed.end(),
                    [&](const ProjectionSpec& other) { return other.name == raw; });
    nn::Norm* norm = nullptr;
    if (config.qk_norm && p.qk_norm) {
      norm = &child(
          cat(p.name, "_norm"),
          std::make_unique<nn::Norm>(
              p.width, nn::NormConfig{.kind = nn::NormConfig::Kind::rms, .eps = config.norm_eps}));
    }
    const bool rotate = p.rope && shape.position == attention::Position::rope;
    if (rotate) check_rotation(spec, config.rope, p);
    projections_.push_back({.into = into,
                            .unrotated = wants_raw ? find_slot(kUnrotated, raw) : nullptr,
                            .norm = norm,
                            .rotate = rotate});
    parts_.push_back({.heads = p.heads, .width = p.width});
    packed += static_cast<std::int64_t>(p.heads) * p.width;
  }
  qkv_ = &child("qkv",
                std::make_unique<nn::Linear>(shape.n_embd, packed, config.bias, config.init_std));
  method_ = &child("method", attention::make_attention(spec, shape, options));
  // A method whose feature map could be folded into qkv would silently lose it: folding belongs
  // between qkv and split_heads.
  FOVEA_ASSERT(!method_->qk_map());
  const std::int64_t merged = static_cast<std::int64_t>(shape.n_head) * shape.v_dim;
  proj_ = &child("proj",
                 std::make_unique<nn::Linear>(merged, shape.n_embd, config.bias, config.proj_std));
}

AttentionInput MultiHeadAttention::project(Ctx& ctx, const Var& x, const Tensor& positions) {
  AttentionInput out;
  const std::vector<Var> heads = split_heads(ctx, qkv_->forward(ctx, x), parts_);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Projection& p = projections_[i];
    Var part = heads[i];  // [B,heads,N,width]
    if (p.norm != nullptr) part = p.norm->forward(ctx, part);
    if (p.unrotated != nullptr) out.*p.unrotated = part;
    if (p.rotate) part = rope(ctx, part, config_.rope, positions);
    out.*p.into = part;
  }
  return out;
}

MultiHeadAttention::Output MultiHeadAttention::forward(Ctx& ctx, const Var& x,
                                                       const ForwardInput& in) {
  AttentionInput into = project(ctx, x, in.positions);
  into.x = x;
  into.key_valid = in.key_valid;
  into.query_valid = in.key_valid;
  into.segments = in.segments;
  into.positions = in.positions;
  const attention::AttentionOutput out =
      in.state != nullptr ? method_->step(ctx, *in.state, into) : method_->forward(ctx, into);
  return {proj_->forward(ctx, merge_heads(ctx, out.o)), out.aux};
}

std::int64_t MultiHeadAttention::matmul_parameters() const {
  return qkv_->weight().shape.numel() + proj_->weight().shape.numel();
}

}  // namespace fovea::models
