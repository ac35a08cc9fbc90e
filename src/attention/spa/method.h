#pragma once
// Sparse Projection Attention: exact attention between projected queries and keys.

#include <memory>
#include <optional>

#include "attention/exact/exact_operator.h"
#include "attention/spa/learned.h"

namespace fovea::attention::spa {

// Parameters and buffers: S (a buffer of a fixed pattern, a parameter if given), or W, G, M, u, and
// the tally dS, of a learned one; theta [H] or b [Hk] of a gate. S, W, G are [in,out], for scope
// head [Hk,in,out].
class Spa final : public Attention {
 public:
  Spa(const AttentionConfig& config, const Settings& settings, const ExactChoice& choice);

  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override;
  std::unique_ptr<DecodeState> start(Ctx& ctx, int batch, int max_length) override;
  AttentionOutput step(Ctx& ctx, DecodeState& state, const AttentionInput& in) override;
  std::optional<FeatureMap> qk_map() const override;
  FeatureMatrices map_matrices(Ctx& ctx) override;

  void aux_loss(Ctx& ctx, std::vector<Var>& into) override;
  void before_step(Ctx& ctx, const nn::Clock& clock) override;
  void after_step(Ctx& ctx, const nn::Clock& clock) override;
  void measure(const nn::Clock& clock, std::vector<nn::Measure>& into) override;

  std::string kernel() const override { return operator_.kernel(); }
  std::string refused() const override { return operator_.refused(); }

 private:
  Var matrix(Ctx& ctx);  // S [G,in,out] of acc
  void draw(Ctx& ctx);   // a fixed S, once, unless it came with the weights
  const Tensor& head_scales(Ctx& ctx);
  nn::Parameter& own_small(const char* name, Shape shape, nn::Init init);
  // The narrow q, k and v of `in`.
  AttentionInput projected(Ctx& ctx, const AttentionInput& in);
  // o as the model's heads, gated.
  AttentionOutput finished(Ctx& ctx, AttentionOutput out);

  AttentionConfig config_, behind_;
  Settings settings_;
  ExactOperator operator_;
  Tensor* s_ = nullptr;             // a fixed S, f32
  nn::Parameter* given_ = nullptr;  // a trained dense S
  nn::Parameter* theta_ = nullptr;  // [H]
  std::optional<LearnedMatrix> learned_;
  Tensor head_scales_;  // of settings_, made once for each dtype and device
  bool drawn_ = false;
};

}  // namespace fovea::attention::spa
