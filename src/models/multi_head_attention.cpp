#include "models/multi_head_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attention/registry.h"
#include "autograd/ops/feature_projection.h"
#include "autograd/ops/linear.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::models {

namespace {

using attention::AttentionInput;
using attention::FeatureMap;
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

std::string_view find_name(Var AttentionInput::*into) {
  const auto found = std::find_if(kSlots.begin(), kSlots.end(),
                                  [into](const Slot& slot) { return slot.into == into; });
  return found == kSlots.end() ? "" : found->name;
}

// `width`: of the vectors that are rotated; `place`: of the method's options.
void check_rotation(const attention::AttentionSpec& spec, const Rope& rope, std::string_view name,
                    int width, const config::Place& place) {
  const int rotated = rope.width > 0 ? rope.width : width;
  if (rotated % 2 == 0 && rotated <= width) return;
  const std::string where = place.str(), of = cat(name, " of attention ", spec.name);
  const std::string reason =
      rope.width == 0
          ? cat("the width of ", of, " is ", width, ", but must be even: model.position is rope")
          : cat("model.rope.width is ", rotated, ", but must be even and at most ", width,
                ", the width of ", of);
  throw ConfigError(where.empty() ? reason : cat(where, ": ", reason));
}

// Whether the second half of the projections is the first once more, for global tokens.
bool is_two_sets(const std::vector<ProjectionSpec>& listed) {
  const std::size_t half = listed.size() / 2;
  bool out = half > 0 && listed.size() == 2 * half;
  for (std::size_t i = 0; out && i < half; ++i) {
    const ProjectionSpec &one = listed[i], &two = listed[half + i];
    out = two.name == cat(one.name, "_global") && two.heads == one.heads && two.width == one.width;
  }
  return out;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config,
                                       const attention::AttentionSpec& spec,
                                       const config::Node& options)
    : config_(config) {
  const std::vector<ProjectionSpec> listed =
      attention::projections_of(spec, config.attention, options);
  const attention::AttentionConfig shape = attention::as_projected(spec, config.attention, options);
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
    projections_.push_back({.into = into,
                            .unrotated = wants_raw ? find_slot(kUnrotated, raw) : nullptr,
                            .norm = norm,
                            .rotate = p.rope && shape.position == attention::Position::rope,
                            .mapped_heads = 0});
    parts_.push_back({.heads = p.heads, .width = p.width});
    packed += static_cast<std::int64_t>(p.heads) * p.width;
  }
  qkv_ = &child("qkv",
                std::make_unique<nn::Linear>(shape.n_embd, packed, config.bias, config.init_std));
  for (nn::Parameter* parameter : qkv_->parameters())
    parameter->two_sets = is_two_sets(listed);
  method_ = &child("method", attention::make_attention(spec, shape, options));
  find_map();
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    const bool narrow = p.mapped_heads > 0 && map_->site == FeatureMap::Site::before_rope;
    const int width = narrow ? map_->width : parts_[i].width;
    if (p.rotate) check_rotation(spec, config.rope, find_name(p.into), width, options.place());
  }
  const std::int64_t merged = static_cast<std::int64_t>(shape.n_head) * shape.v_dim;
  proj_ = &child("proj",
                 std::make_unique<nn::Linear>(merged, shape.n_embd, config.bias, config.proj_std));
}

// Folding is exact where the map follows the product at once.
void MultiHeadAttention::find_map() {
  map_ = method_->qk_map();
  folded_ = parts_;
  if (!map_) return;
  folds_ = true;
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    Projection& p = projections_[i];
    const bool is_q = p.into == &AttentionInput::q, is_k = p.into == &AttentionInput::k;
    if (!is_q && !is_k) continue;
    p.mapped_heads = is_q ? map_->q_heads : map_->k_heads;
    folded_[i] = {.heads = p.mapped_heads, .width = map_->width};
    const bool behind_rotation = p.rotate && map_->site == FeatureMap::Site::after_rope;
    folds_ = folds_ && p.norm == nullptr && !behind_rotation;
  }
  if (!folds_) folded_ = parts_;
}

std::string MultiHeadAttention::map_text() const {
  if (!map_) return {};
  if (folds_) return cat("q and k of width ", map_->width, ", S folded into the projections");
  const bool normed =
      std::any_of(projections_.begin(), projections_.end(),
                  [](const Projection& p) { return p.mapped_heads > 0 && p.norm != nullptr; });
  return cat("q and k of width ", map_->width, ", S applied to tokens, since ",
             normed ? "model.qk_norm" : "RoPE", " stands between it and the projections");
}

MultiHeadAttention::Packed MultiHeadAttention::packed(Ctx& ctx) {
  Packed own{qkv_->weight().var(), qkv_->bias()};
  if (!folds_) return own;
  const attention::FeatureMatrices by = method_->map_matrices(ctx);
  std::vector<FoldPart> parts;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool mapped = projections_[i].mapped_heads > 0;
    const Var& s = projections_[i].into == &AttentionInput::q ? by.q : by.k;
    parts.push_back({std::int64_t{parts_[i].heads} * parts_[i].width, mapped ? s : Var()});
  }
  return {fold_features(ctx, own.weight, parts),
          own.bias.defined() ? fold_features(ctx, own.bias, parts) : Var()};
}

AttentionInput MultiHeadAttention::project(Ctx& ctx, const Var& x, const Tensor& positions,
                                           const Packed& weights, bool mapped) {
  AttentionInput out;
  attention::FeatureMatrices by;
  const bool maps = map_ && mapped && !folds_;
  if (maps) by = method_->map_matrices(ctx);
  const std::vector<Var> heads =
      split_heads(ctx, linear(ctx, x, weights.weight, weights.bias), mapped ? folded_ : parts_);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Projection& p = projections_[i];
    const auto map = [&](Var part, FeatureMap::Site site) {
      if (p.mapped_heads == 0 || !maps || map_->site != site) return part;
      return project_features(ctx, part, p.into == &AttentionInput::q ? by.q : by.k,
                              p.mapped_heads);
    };
    Var part = heads[i];  // [B,heads,N,width]
    if (p.norm != nullptr) part = p.norm->forward(ctx, part);
    if (p.unrotated != nullptr) out.*p.unrotated = part;
    part = map(part, FeatureMap::Site::before_rope);
    const bool too_early =
        !mapped && p.mapped_heads > 0 && map_->site == FeatureMap::Site::before_rope;
    if (p.rotate && !too_early) part = rope(ctx, part, config_.rope, positions);
    out.*p.into = map(part, FeatureMap::Site::after_rope);
  }
  out.mapped = map_.has_value() && mapped;
  return out;
}

AttentionInput MultiHeadAttention::unmapped(Ctx& ctx, const Var& x, const Tensor& positions) {
  return project(ctx, x, positions, {qkv_->weight().var(), qkv_->bias()}, /*mapped=*/false);
}

// The method's own state, beside the weights of all its steps.
class MultiHeadAttention::FoldedState final : public attention::DecodeState {
 public:
  FoldedState(std::unique_ptr<attention::DecodeState> own, Packed weights)
      : own_(std::move(own)), weights_(std::move(weights)) {}
  std::int64_t length() const override { return own_->length(); }
  std::int64_t bytes_per_token() const override { return own_->bytes_per_token(); }
  void reorder(Ctx& ctx, std::span<const std::int64_t> samples) override {
    own_->reorder(ctx, samples);
  }
  attention::DecodeState& own() { return *own_; }
  const Packed& weights() const { return weights_; }

 private:
  std::unique_ptr<attention::DecodeState> own_;
  Packed weights_;
};

std::unique_ptr<attention::DecodeState> MultiHeadAttention::start(Ctx& ctx, int batch,
                                                                  int max_length) {
  std::unique_ptr<attention::DecodeState> own = method_->start(ctx, batch, max_length);
  if (own == nullptr || !folds_) return own;
  return std::make_unique<FoldedState>(std::move(own), packed(ctx));
}

MultiHeadAttention::Output MultiHeadAttention::forward(Ctx& ctx, const Var& x,
                                                       const ForwardInput& in) {
  if (watcher_) watcher_(ctx, x, in);
  auto* const folded = dynamic_cast<FoldedState*>(in.state);
  attention::DecodeState* const state = folded != nullptr ? &folded->own() : in.state;
  AttentionInput into =
      project(ctx, x, in.positions, folded != nullptr ? folded->weights() : packed(ctx), true);
  into.x = x;
  into.key_valid = in.key_valid;
  into.query_valid = in.key_valid;
  into.segments = in.segments;
  into.positions = in.positions;
  const attention::AttentionOutput out =
      state != nullptr ? method_->step(ctx, *state, into) : method_->forward(ctx, into);
  return {proj_->forward(ctx, merge_heads(ctx, out.o)), out.aux};
}

std::int64_t MultiHeadAttention::matmul_parameters() const {
  std::int64_t rows = 0;
  for (const HeadPart& part : folded_)
    rows += std::int64_t{part.heads} * part.width;
  return rows * qkv_->weight().shape[1] + proj_->weight().shape.numel();
}

}  // namespace fovea::models
