#pragma once
// What a projection S meets in the layers of a trained model: queries, keys and values of one
// example, and the matrices between them. What the verb `probe` reads.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/spa/pattern.h"
#include "core/tensor.h"

namespace fovea::train {

struct LayerTokens {
  int layer = 0;
  bool causal = true;
  // [heads,N,width], f64 on the host: the heads that S makes scores for (a single one for
  // proj_scope single), of real tokens of one segment, normed and rotated as far as that comes
  // before S.
  Tensor q, k, v;
  // [G,width,d'], G 1, or heads of keys or queries: scores are scale (q s_q) (k s_k)^T. Those of
  // queries hold the factor of a gate.
  Tensor s_q, s_k;
  double scale = 0;
  std::string s;  // where S comes from, for people
  // What a fixed S is drawn from.
  std::optional<attention::spa::PatternChoice> pattern;
};

struct LayerTokensAsk {
  std::string path = {};                    // as evaluate() takes it
  std::vector<std::string> overrides = {};  // of the run's settings
  std::vector<int> layers = {};             // empty: all
  std::int64_t example = 0;                 // of the split
  // SPA's options key=value for an S that is drawn anew. Empty: the model's own S, and in layers
  // of other methods SPA's defaults. score_scale is inv_sqrt_dk unless given.
  std::vector<std::string> options = {};
};

struct RunTokens {
  std::string path, split;
  std::int64_t step = 0;
  std::vector<LayerTokens> layers;
};

// Runs the model on that example, in its precision. Throws ConfigError for a layer, an example or
// options that there are none for (proj_scope model among them, whose heads have no counterpart),
// for attention without keys of its own (reformer), and what evaluate() throws.
RunTokens layer_tokens(const LayerTokensAsk& ask);

}  // namespace fovea::train
