#pragma once
// The attention sublayer: projections, heads, norms and rotation around a method's operator.

#include <memory>
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

// The projections that `spec` asks for: its own list, else q, k and v of the standard widths.
std::vector<attention::ProjectionSpec> projections_of(const attention::AttentionSpec& spec,
                                                      const attention::AttentionConfig& config,
                                                      const config::Node& options);

// Parameters: qkv.weight [sum of heads * width, C], all listed projections in one product, part
// after part in the method's order and head-major inside a part; qkv.bias; <projection>_norm.weight
// [width] (q_norm, k_norm); proj.weight [C, H Dv]; proj.bias; the method's own under method. The
// method is made for the widths that its own list gives q and v.
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
  std::int64_t matmul_parameters() const;

 private:
  struct Projection {
    Var attention::AttentionInput::*into;
    Var attention::AttentionInput::*unrotated;  // null, or where the value before rotation goes too
    nn::Norm* norm;                             // null: none
    bool rotate;
  };

  attention::AttentionInput project(Ctx& ctx, const Var& x, const Tensor& positions);

  MultiHeadConfig config_;
  std::vector<HeadPart> parts_;          // of the packed product
  std::vector<Projection> projections_;  // one a part
  nn::Linear* qkv_ = nullptr;
  attention::Attention* method_ = nullptr;
  nn::Linear* proj_ = nullptr;
};

}  // namespace fovea::models
