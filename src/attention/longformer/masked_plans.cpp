#include "attention/longformer/masked_plans.h"

#include <algorithm>

namespace fovea::attention {

MaskedPlans::Pair MaskedPlans::fill(Ctx& ctx, const LongformerPattern& pattern,
                                    const PlanShape& shape, const Tensor& global_mask) {
  std::list<Slot>& slots = slots_[shape];
  auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) {
    return s.device == ctx.device && s.local.use_count() == 1 && s.global.use_count() == 1;
  });
  if (slot == slots.end()) {
    const Tensor flags = Tensor::empty({shape.batch, plan_tiles(shape.keys)}, DType::i64,
                                       ctx.device, "attention_plan");
    std::vector<PlanRule> local;
    for (const TileRule& window : pattern.windows())
      local.push_back({.rule = window, .key_flags = flags});
    const std::vector<PlanRule> global{{.query_flags = flags}};
    slots.push_front(
        {.device = ctx.device,
         .flags = flags,
         .local = std::make_shared<AttentionPlan>(shape, local, ctx.device, ctx.stream),
         .global = std::make_shared<AttentionPlan>(shape, global, ctx.device, ctx.stream)});
    slot = slots.begin();
  }
  FOVEA_ON(ctx.device, pack_flags(ctx.stream.ref(), slot->flags.view(), global_mask.view()));
  slot->local->build(ctx);
  slot->global->build(ctx);
  return {slot->local, slot->global};
}

}  // namespace fovea::attention
