// What a trainer knows of itself, and how it is put into another state.

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "kernels/fingerprint.h"
#include "train/import/model_keys.h"
#include "train/trainer.h"

namespace fovea::train {

MemoryUse Trainer::memory() const {
  const MemoryStats persistent = persistent_allocator(ctx_.device).stats(),
                    activations = activations_.stats();
  return {persistent.peak - std::min(persistent.peak, persistent_before_), activations.peak,
          activations.reserved};
}

std::string Trainer::memory_report() const {
  return cat("activations at their peak of ",
             human_bytes(static_cast<double>(activations_.stats().peak)), ":\n",
             fovea::memory_report(activations_.stats()), "persistent at their peak of ",
             human_bytes(static_cast<double>(memory().persistent)), ":\n",
             fovea::memory_report(persistent_allocator(ctx_.device).stats()));
}

std::uint64_t Trainer::weights_fingerprint() {
  const Tensor out = Tensor::empty({1}, DType::i64, ctx_.device, "fingerprint");
  FOVEA_ON(ctx_.device, fingerprint(stream_.ref(), out.view(), store_.masters().view()));
  std::uint64_t value = 0;
  stream_.copy(&value, out.view().data, sizeof value);
  stream_.synchronize();
  return value;
}

RunState Trainer::state() {
  FOVEA_ASSERT(pending_.empty());
  RunState out;
  out.step = clock_.step;
  out.tokens = feed_.tokens();
  out.seed = config_.seed;
  out.data_hash = feed_.data_hash();
  out.data_fingerprint = task_->data_fingerprint();
  out.scaler = scaler_.state(stream_);
  return out;
}

void Trainer::start_from(const ImportedModel& source) {
  std::string wrong;
  for (const Disagreement& d : disagreements(config_.model, source))
    wrong += cat(wrong.empty() ? "" : "\n", d.what);
  if (!wrong.empty()) throw ConfigError(wrong);
  load_weights(source, ctx_, task_->model(), store_);
}

void Trainer::resume(const Checkpoint& checkpoint) {
  const std::string then = checkpoint.state().data_fingerprint, now = task_->data_fingerprint();
  if (!then.empty() && then != now) {
    throw CheckpointError(cat(checkpoint.path(), ": was trained on other data (fingerprint ", then,
                              ") than there is now (", now,
                              "); give it its data back, or start a new run"));
  }
  checkpoint.load_model(ctx_, task_->model(), store_);
  checkpoint.load_optimizer(ctx_, store_);
  const RunState& state = checkpoint.state();
  clock_.step = state.step;
  feed_.restore(state.data_hash, state.tokens);
  scaler_.restore(stream_, state.scaler);
}

}  // namespace fovea::train
