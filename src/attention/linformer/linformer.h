#pragma once
// What the forms of Linformer share: settings, and the learned maps E and F of the token axis.

#include <memory>

#include "attention/registry.h"

namespace fovea::attention {

enum class LinformerShare { none, headwise, kv, layer };

struct LinformerSettings {
  std::int64_t rank = 0, max_len = 0;  // R, and the most tokens E and F have columns for
  LinformerShare share = LinformerShare::kv;
  std::int64_t block = 0, block_rank = 0, window_blocks = 0;  // of causal_mode: block
  bool renormalise = false;
  double scale = 0;  // of scores; 0: 1 / sqrt(width of a query head)
};

// The name of the E that a whole model shares in a form: "self", "cross", "block", "prefix".
std::string linformer_shared_name(std::string_view form);

// Parameters: E and F [slots, columns], with share none [Hk, slots, columns]; no F with share kv
// and layer, where F = E.
class Linformer : public Attention {
 public:
  std::string kernel() const override { return "tiled"; }

 protected:
  // `form` tells apart the maps that a whole model shares.
  Linformer(const AttentionConfig& config, const LinformerSettings& settings, std::string_view form,
            std::int64_t slots, std::int64_t columns);

  const AttentionConfig& config() const { return config_; }
  const LinformerSettings& settings() const { return settings_; }
  Var e() const { return e_->var(); }
  Var f() const { return f_ != nullptr ? f_->var() : e(); }
  // The mask of queries against slots: queries, scale and dropout; `part` tells random numbers
  // apart.
  AttentionMask slot_mask(Ctx& ctx, const AttentionInput& in, std::string_view part) const;
  // Throws ShapeError for more than max_len tokens.
  void require_length(std::int64_t tokens) const;

 private:
  AttentionConfig config_;
  LinformerSettings settings_;
  nn::Parameter* e_;
  nn::Parameter* f_;  // null: E
};

// baselines.md 8.1, 8.3 and 8.4.
std::unique_ptr<Attention> linformer_bidirectional(const AttentionConfig& config,
                                                   const LinformerSettings& settings);
std::unique_ptr<Attention> linformer_block(const AttentionConfig& config,
                                           const LinformerSettings& settings);
std::unique_ptr<Attention> linformer_prefix(const AttentionConfig& config,
                                            const LinformerSettings& settings);

// AttentionSpec::definition of each form.
enum class LinformerForm { bidirectional, block, prefix };
Tensor linformer_definition(Attention& method, const AttentionConfig& config,
                            const LinformerSettings& settings, LinformerForm form,
                            const AttentionInput& in);

// The pairs that a head of the block form works on, in all and in whole 64 x 64 tiles.
struct BlockPairs {
  double local = 0, slots = 0, tiled_local = 0, tiled_slots = 0;
};
BlockPairs linformer_block_pairs(const LinformerSettings& settings, std::int64_t tokens);

// Tokens that the prefix form multiplies pair by pair between two states.
constexpr std::int64_t kLinformerChunk = 128;

}  // namespace fovea::attention
