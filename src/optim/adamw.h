#pragma once
// AdamW over the flat store: master, moments and the 16-bit copy in one pass.

#include "autograd/ctx.h"
#include "optim/config.h"
#include "optim/grad_scaler.h"
#include "optim/parameter_store.h"

namespace fovea::optim {

class AdamW {
 public:
  explicit AdamW(const OptimConfig& config);
  // One update from the flat gradient [elements], with the learning rate, clipping and scale that
  // the scaler decided on; nothing changes if it decided to skip. Only of the elements whose
  // moments the store holds: of the gradient nothing else is read. Source: Loshchilov and Hutter
  // 2019.
  void step(Ctx& ctx, ParameterStore& store, const Tensor& gradient,
            const GradScaler& scaler) const;

 private:
  AdamWArgs args_;
};

}  // namespace fovea::optim
