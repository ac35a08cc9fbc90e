#pragma once
// Exact attention under masks and, where a method has one, under a pattern: what standard, short
// and the pattern-sparse methods are made of. Source: baselines.md 2 and 4.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "autograd/ops/attention_plan.h"

namespace fovea::attention {

// The rules of a pattern for calls of one shape; they must follow from the shape alone.
using Pattern = std::function<std::vector<PlanRule>(const PlanShape&)>;
// The orders of their slots, on the host; undefined ones: slots are tokens.
using SlotOrders = std::function<PlanOrders(const PlanShape&)>;

struct ExactChoice {
  bool materialised = false;
  bool strict = false;  // materialised never stands in for tiles that a GPU lacks
  double scale = 0;     // of the scores; 0: 1 / sqrt(width of a query head)
  double softcap = 0;   // of the scores; 0: none
};

// Options of methods that have both kernels, and of those that walk a pattern's tiles.
constexpr config::Option kExactKernelOption = {
    "kernel", config::Type::choice, "auto", "auto | tiled | tiled! | materialised | materialised!",
    "How it is computed; auto is tiled, but on a GPU materialised for heads wider than 256. With ! "
    "a kernel that does not apply is an error."};
constexpr config::Option kTiledKernelOption = {
    "kernel", config::Type::choice, "auto", "auto | tiled | tiled!",
    "How it is computed: always by the tiles that the pattern touches; on a GPU heads end at width "
    "256."};
constexpr config::Option kScaleOption = {
    "scale", config::Type::number, "", "(0, inf)",
    "Of the scores; by default 1 / sqrt(width of a query head)."};
// Its value, or that default.
double score_scale(const AttentionConfig& config, const config::Node& options);
constexpr config::Option kSoftcapOption = {
    "softcap", config::Type::number, "", "(0, inf)",
    "Scores x become softcap tanh(x / softcap) before biases and slopes (Gemma 2: 50); by default "
    "they stay. On a GPU the slower tiled kernels compute it."};
ExactChoice exact_choice(const config::Node& options);

class ExactOperator {
 public:
  // `pattern` null: what the masks show. With one, the kernel is the tiled one.
  ExactOperator(const AttentionConfig& config, const ExactChoice& choice, Pattern pattern = {},
                SlotOrders orders = {});

  // q over k and v, with bias and masks of `in`; `dropout` names the random numbers. N new queries
  // behind M - N others if causal, so decoding calls it too. `plan`: instead of the pattern's.
  // Throws ConfigError for a pattern on a GPU with heads that are too wide for its tiles.
  AttentionOutput forward(Ctx& ctx, const AttentionInput& in, std::string_view dropout,
                          std::shared_ptr<const AttentionPlan> plan = {});
  // Plans are built again: what the pattern follows from has changed.
  void forget_plans() { plans_ = {}; }

  std::string kernel() const { return choice_.materialised ? "materialised" : "tiled"; }
  std::string refused() const;  // Attention::refused

 private:
  bool too_wide_for_a_gpu() const;
  const Tensor& slopes(Ctx& ctx, DType dtype);

  AttentionConfig config_;
  ExactChoice choice_;
  Pattern pattern_;
  SlotOrders orders_;
  PlanCache plans_;
  Tensor slopes_;  // of ALiBi, made once for each dtype and device
};

}  // namespace fovea::attention
