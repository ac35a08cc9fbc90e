#pragma once
// What a model is made of; filled and range-checked by train/run_config.cpp.

#include <string>
#include <vector>

#include "config/node.h"

namespace fovea::attention {
struct AttentionSpec;
}

namespace fovea::models {

enum class Norm { layer, rms };
enum class Mlp { gelu, swiglu };
enum class Position { none, sinusoidal, learned, rope, alibi };
// Whose last state stands for a sequence that is classified: token 0's (a CLS token that the data
// puts there), the mean of all real tokens', or that of the last real one.
enum class Pooling { cls, mean, last };

// rope: angle of pair t at position p is p * base^(-2t/width).
struct RopeConfig {
  double base = 10000;
  bool interleaved = false;  // pairs (2t, 2t+1) instead of (t, t + width/2)
  int width = 0;             // rotated features of a head; 0: all
};

struct ModelConfig {
  std::string kind = "decoder";                // or "encoder"
  int n_layer = 4, n_head = 4, n_kv_head = 0;  // n_kv_head 0: n_head
  int n_embd = 256;
  int head_dim = 0;      // 0: n_embd / n_head
  int block_size = 256;  // longest sequence
  int vocab_size = 0;    // 0: taken from the data
  bool packed = false;   // batches bring segments: data.pack is documents
  Norm norm = Norm::layer;
  double norm_eps = 1e-5;
  Mlp mlp = Mlp::gelu;
  int mlp_dim = 0;  // 0: 4 n_embd (gelu) or 8/3 n_embd rounded up to a multiple of 64 (swiglu)
  Position position = Position::learned;
  // learned: sequences longer than block_size see its table stretched over them.
  bool interpolate_positions = false;
  RopeConfig rope;
  bool qk_norm = false;
  bool bias = true;              // of linear layers and layer norms
  bool tie_embeddings = true;    // of decoders
  Pooling pool = Pooling::mean;  // of encoders
  int classes = 0;               // of encoders; 0: taken from the data
  double dropout = 0;            // of embeddings and residual branches
  double attention_dropout = 0;
  double init_std = 0.02;  // residual output projections: / sqrt(2 n_layer)
  // One options node a layer (already validated against the kind's options), and its kind.
  struct AttentionChoice {
    std::string kind = "standard";
    config::Node options;
    // A method that is in no registry (a test's own); null: the registry's of that kind.
    const attention::AttentionSpec* spec = nullptr;
  };
  std::vector<AttentionChoice> attention;

  bool causal() const { return kind == "decoder"; }
  int kv_heads() const { return n_kv_head == 0 ? n_head : n_kv_head; }
  int head_width() const { return head_dim == 0 ? n_embd / n_head : head_dim; }
  int mlp_width() const {
    if (mlp_dim != 0) return mlp_dim;
    return mlp == Mlp::gelu ? 4 * n_embd : (8 * n_embd / 3 + 63) / 64 * 64;
  }
};

}  // namespace fovea::models
