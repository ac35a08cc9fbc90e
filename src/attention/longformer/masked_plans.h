#pragma once
// Longformer's plans for global tokens that come with every batch.

#include <list>
#include <map>

#include "attention/longformer/pattern.h"

namespace fovea::attention {

// Plans are filled anew for every mask, on the device and without allocating once there are enough
// of them: a plan that no backward pass holds any more is used again.
class MaskedPlans {
 public:
  struct Pair {
    std::shared_ptr<const AttentionPlan> local, global;
  };
  // For a call of `shape` (with its batch) and its global_mask u8 [B,N].
  Pair fill(Ctx& ctx, const LongformerPattern& pattern, const PlanShape& shape,
            const Tensor& global_mask);

 private:
  struct Slot {
    Device device;
    Tensor flags;  // i64 [B, ceil(N / 64)], which both plans read
    std::shared_ptr<AttentionPlan> local, global;
  };
  std::map<PlanShape, std::list<Slot>> slots_;
};

}  // namespace fovea::attention
