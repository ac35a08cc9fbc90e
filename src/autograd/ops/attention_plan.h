#pragma once
// A pattern of attention as a TilePlan that owns its memory: what a method hands to
// flash_attention.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "autograd/ctx.h"
#include "kernels/tile_plan.h"

namespace fovea {

struct AttentionMask;

// A rule and what it points to. A defined tensor sets the rule's pointer and its stride by sample;
// host tensors are moved to the plan's device.
struct PlanRule {
  TileRule rule = {};
  Tensor key_flags = {}, query_flags = {};      // i64 [1|B, ceil(M / 64)], [1|B, ceil(N / 64)]
  Tensor list = {};                             // i32 [1|B, ceil(M / block), width]
  Tensor list_words = {};                       // i64 [1|B, ceil(M / 64), width, 64]
  Tensor query_lengths = {}, key_lengths = {};  // i32 [B]
};

struct PlanShape {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0;
  bool causal = false;
  // NOLINTNEXTLINE(modernize-use-nullptr): a false finding on <=> of clang-tidy 14
  friend auto operator<=>(const PlanShape&, const PlanShape&) = default;
};

// Orders of the slots, i32 [1|B, 1|H, N], [1|B, 1|Hk, M]; both or none.
struct PlanOrders {
  Tensor query = {}, key = {};
};

// Query head h follows rules[h % rules.size()]. By its tensors a plan is made for every sample or
// for all at once. Memory: 4 bytes for each listed tile, twice, and 12 for each tile of tokens.
class AttentionPlan {
 public:
  // Makes room, by the host alone; build() fills it. Orders i32 [1|B, 1|H, N], [1|B, 1|Hk, M], both
  // or none, on the device. counts_tokens: build() is given the call's masks, and lists by them
  // too; needed only where they hide much. Throws ShapeError.
  AttentionPlan(const PlanShape& shape, const std::vector<PlanRule>& rules, Device device,
                Stream& stream, const Tensor& query_order = {}, const Tensor& key_order = {},
                bool counts_tokens = false);
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  // Fills the lists, on the stream, from what the tensors hold then: no allocation, capturable.
  void build(Ctx& ctx, const AttentionMask& mask);
  void build(Ctx& ctx);

  const TilePlan& view() const { return plan_; }
  // The part of a plan with lists for every sample that is for `count` of them, `first` and on.
  // Rules must have no tensors by sample.
  TilePlan samples(std::int64_t first, std::int64_t count) const;
  const PlanShape& shape() const { return shape_; }
  Device device() const { return device_; }
  // Visible pairs of a mean head under pattern, causality and lengths, where the host can see the
  // rules' tensors; evaluated row by row, so for costs and reports. -1: it cannot.
  double count_pairs() const;
  // Likewise the pairs, visible or not, of the tiles that are listed.
  double count_tiled_pairs() const;
  void set_pairs(double pairs) { plan_.pairs = pairs; }

 private:
  void build(Ctx& ctx, const AttentionScores& scores);
  TileSight host_sight() const;

  PlanShape shape_;
  Device device_;
  TilePlan plan_;
  std::vector<TileRule> host_rules_;  // with the pointers that were given
  bool host_sees_ = true;
  std::vector<Tensor> kept_;
};

// Plans of one method by shape and device, built once: for patterns that depend on nothing else.
// Training keeps all of its shapes, for a captured step has their addresses; other work, which may
// meet a new length with every token, keeps the first few.
class PlanCache {
 public:
  // On meta the plan knows its pairs, and is not built. `orders`: null, or on the host.
  std::shared_ptr<const AttentionPlan> get(
      Ctx& ctx, const PlanShape& shape,
      const std::function<std::vector<PlanRule>(const PlanShape&)>& rules,
      const std::function<PlanOrders(const PlanShape&)>& orders = {});

 private:
  static constexpr std::size_t kMostKept = 32;

  std::map<std::tuple<PlanShape, int, int>, std::shared_ptr<const AttentionPlan>> plans_;
};

}  // namespace fovea
