#pragma once
// The attention sublayer: projections, heads, norms and rotation around a method's operator.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace fovea::models {

// What a layer is told besides its input. Tensors may be undefined.
struct ForwardInput {
  Tensor key_valid = {};                    // u8 [B,N]; 1 = real
  Tensor segments = {};                     // i32 [B,N]
  Tensor positions = {};                    // i32 [B,N]; undefined: 0..N-1
  attention::DecodeState* state = nullptr;  // this layer's past: x holds new tokens only
};

struct MultiHeadConfig {
  attention::AttentionConfig attention;
  bool bias = true;      // of the projections
  bool qk_norm = false;  // RMS norm of every head of the projections that allow it
  double norm_eps = 1e-5;
  Rope rope;  // used if attention.position is rope, where a projection allows it
  double init_std = 0.02, proj_std = 0.02;
};

// Parameters: qkv.weight [sum of heads * width, C], all listed projections in one product, part
// after part in the method's order and head-major inside a part; qkv.bias; <projection>_norm.weight
// [width] (q_norm, k_norm); proj.weight [C, H Dv]; proj.bias; the method's own under method. The
// method is made for the widths that its own list gives q and v. A map of q and k that the method
// has (Attention::qk_map) is folded into qkv in every forward, training included, where no norm and
// no rotation stand between; else it is applied in its place.
class MultiHeadAttention final : public nn::Module {
 public:
  struct Output {
    Var y;    // [B,N,C]
    Var aux;  // the method's auxiliary term; undefined: none
  };

  // Throws ConfigError for a projection name that AttentionInput does not know, for one too narrow
  // for its rotation, and what the method refuses.
  MultiHeadAttention(const MultiHeadConfig& config, const attention::AttentionSpec& spec,
                     const config::Node& options);

  // x [B,N,C], normalised by the block.
  Output forward(Ctx& ctx, const Var& x, const ForwardInput& in);
  attention::Attention& method() { return *method_; }
  // A state for ForwardInput::state, or null: Attention::start. What is folded is folded once, for
  // all steps of the state.
  std::unique_ptr<attention::DecodeState> start(Ctx& ctx, int batch, int max_length);
  // Weights of the products that a token sees: folded ones have fewer rows.
  std::int64_t matmul_parameters() const;
  bool folds() const { return folds_; }
  // What becomes of the method's map of q and k, for people; "" if it has none.
  std::string map_text() const;
  // q, k and v as the method's map meets them, or as the method does where it has none: normed, and
  // rotated unless the map comes first.
  attention::AttentionInput unmapped(Ctx& ctx, const Var& x, const Tensor& positions);
  // Called by forward with what it got, before anything else; for probes. Null: nobody.
  using Watcher = std::function<void(Ctx& ctx, const Var& x, const ForwardInput& in)>;
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }

 private:
  struct Projection {
    Var attention::AttentionInput::*into;
    Var attention::AttentionInput::*unrotated;  // null, or where the value before rotation goes too
    nn::Norm* norm;                             // null: none
    bool rotate;
    int mapped_heads;  // behind the method's map; 0: it does not pass through it
  };
  // The weights of the packed product.
  struct Packed {
    Var weight, bias;
  };
  class FoldedState;

  void find_map();
  Packed packed(Ctx& ctx);
  attention::AttentionInput project(Ctx& ctx, const Var& x, const Tensor& positions,
                                    const Packed& weights, bool mapped);

  MultiHeadConfig config_;
  std::vector<HeadPart> parts_;          // of the packed product
  std::vector<Projection> projections_;  // one a part
  nn::Linear* qkv_ = nullptr;
  attention::Attention* method_ = nullptr;
  nn::Linear* proj_ = nullptr;
  std::optional<attention::FeatureMap> map_;
  bool folds_ = false;
  std::vector<HeadPart> folded_;  // the parts of the packed product as it is computed
  Watcher watcher_;
};

}  // namespace fovea::models
