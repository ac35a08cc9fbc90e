#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/ops/elementwise.h"
#include "core/error.h"
#include "core/isa.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "train/import/model_keys.h"

namespace fovea::train {

namespace {

// Behind the gradients of a buffer ride the loss and the auxiliary terms of its micro-batch, so
// that they are added by the same tree. A whole block keeps the flat buffers' alignment.
constexpr std::int64_t kTail = 64;
constexpr std::int64_t kLossSlot = 0, kAuxSlot = 1;
// After so many steps in a row without an update the run has diverged: fp16 starts at 2^16, so its
// scale has been at 1 for a while.
constexpr double kMostSkipped = 20;

void put(Ctx& ctx, const Tensor& root, std::int64_t elements, std::int64_t slot, const Var& value) {
  const Tensor to = root.slice(0, elements + slot, elements + slot + 1);
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), value.value().reshape({1}).view()));
}

std::array<double, 2> tail_of(const Tensor& root, std::int64_t elements) {
  if (root.device().is_meta()) return {0, 0};
  const std::vector<double> values = root.slice(0, elements, elements + 2).values();
  return {values[0], values[1]};
}

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T v) { return std::isfinite(v); });
}

}  // namespace

Device device_of(const TrainConfig& /*config*/) {
  return kCpu;
}

int threads_of(const TrainConfig& config) {
  return config.threads > 0 ? config.threads : cpu_count();
}

Trainer::Trainer(const RunConfig& config, Device device)
    : config_(config),
      persistent_before_(persistent_allocator(device).stats().live),
      stream_(device, threads_of(config.train)),
      activations_(memory_source(device)),
      ctx_{device,      stream_,    activations_, &at_, nullptr, true, config.train.precision,
           config.seed, config.fuse},
      clock_{0, config.planned_steps()},
      task_(make_task(config)),
      ranks_(dist::solo()),
      store_(ctx_, task_->model(), optim::StoreMode::train, config.optim.no_decay,
             config.train.freeze),
      tree_(device, state_dtype(ctx_.precision), store_.elements() + kTail,
            task_->loader().micro_batches()),
      feed_(task_->loader(), stream_, config.train.micro_order, config.seed, ranks_->rank(),
            ranks_->size()),
      scaler_(ctx_, {.max_norm = config.train.max_norm}, config.optim, store_.elements()),
      adamw_(config.optim),
      schedule_(config.optim.lr, config.sched, config.planned_steps(), config.model.n_embd) {
  if (store_.parameters() == 0) throw ConfigError("train.freeze leaves nothing to train");
  persistent_allocator(device).reset_peak();
}

StepRecord Trainer::step() {
  at_ = {clock_.step, 0};
  task_->model().before_step(ctx_, clock_);
  const std::int64_t targets = feed_.global_targets(clock_.step);
  for (const std::int64_t micro : feed_.micro_batches(clock_.step)) {
    const data::Batch batch = feed_.load(clock_.step, micro);
    at_ = {clock_.step, batch.first_sample};
    forward_backward(batch, targets);
    tree_.close(ctx_, batch.index);  // adds what the fixed tree allows
  }
  const Tensor root = tree_.root(), gradient = root.slice(0, 0, store_.elements());
  scaler_.decide(ctx_, gradient, schedule_.at(clock_.step));  // finite, clip, scale
  check_finite(root, scaler_.state());
  adamw_.step(ctx_, store_, gradient, scaler_);
  feed_.finish_step();
  ++clock_.step;
  task_->model().after_step(ctx_, clock_);
  return record(root, targets);
}

// Adds the micro-batch's gradient to a zeroed buffer of the tree.
void Trainer::forward_backward(const data::Batch& batch, std::int64_t targets) {
  const Tensor leaf = tree_.leaf(ctx_, batch.index);
  store_.bind_gradients(leaf.slice(0, 0, store_.elements()));
  ctx_.tape = &tape_;
  Loss loss = task_->forward(ctx_, batch);
  put(ctx_, leaf, store_.elements(), kLossSlot, loss.sum);
  task_->model().aux_loss(ctx_, loss.aux);
  if (!loss.aux.empty()) {
    Var aux = loss.aux.front();
    for (std::size_t i = 1; i < loss.aux.size(); ++i)
      aux = add(ctx_, aux, loss.aux[i]);
    aux = scale(ctx_, aux, static_cast<double>(loss.targets));  // weighs like the sum it joins
    put(ctx_, leaf, store_.elements(), kAuxSlot, aux);
    loss.sum = add(ctx_, loss.sum, aux);
  }
  tape_.backward(ctx_, loss.sum, scaler_.seed(ctx_, targets));
  ctx_.tape = nullptr;
}

Evaluation Trainer::evaluate(Split split, std::int64_t max_batches) {
  return Evaluator(*task_, split, max_batches).run(ctx_);
}

StepRecord Trainer::record(const Tensor& root, std::int64_t targets) const {
  const auto [loss, aux] = tail_of(root, store_.elements());
  const StepScalars scalars = scaler_.state();
  StepRecord out;
  out.step = clock_.step;
  out.max_steps = clock_.max_steps;
  out.tokens = feed_.tokens();
  out.loss = loss / static_cast<double>(targets);
  if (aux != 0) out.aux = aux / static_cast<double>(targets);
  out.grad_norm = scalars.norm;
  out.lr = scalars.lr;
  if (scaler_.scales()) out.scale = scalars.scale;
  out.skipped = static_cast<std::int64_t>(scalars.skipped);
  out.data_hash = feed_.data_hash();
  return out;
}

// A skipped step is fp16's everyday way to find its scale; elsewhere it is an accident.
void Trainer::check_finite(const Tensor& root, const StepScalars& decision) {
  const double loss = tail_of(root, store_.elements())[0];
  const bool finite = decision.finite != 0 && std::isfinite(loss);
  const bool stops = !scaler_.scales() && config_.train.on_nonfinite == OnNonfinite::stop;
  if (finite || (!stops && decision.skipped_in_a_row < kMostSkipped)) return;
  const auto in_a_row = static_cast<std::int64_t>(decision.skipped_in_a_row);
  if (!stops) {
    throw NumericError(cat("step ", clock_.step + 1, ": loss or gradient are not finite for ",
                           in_a_row, " steps; loss ", loss,
                           scaler_.scales() ? cat("; scale fell to ", decision.scale) : "",
                           "; last good step ", clock_.step + 1 - in_a_row));
  }
  throw NumericError(cat("step ", clock_.step + 1, ": ",
                         std::isfinite(loss) ? "the gradient" : "the loss", " is not finite; loss ",
                         loss, first_not_finite(root), "; last good step ", clock_.step,
                         "; lower optim.lr, or let train.on_nonfinite: skip leave out such steps"));
}

std::string Trainer::first_not_finite(const Tensor& gradient) const {
  if (!gradient.device().is_cpu()) return {};
  for (const optim::Segment& segment : store_.segments()) {
    const bool fine = gradient.dtype() == DType::f64
                          ? all_finite(gradient.data<double>() + segment.begin, segment.size)
                          : all_finite(gradient.data<float>() + segment.begin, segment.size);
    if (!fine) return cat("; first in the gradient of ", segment.parameter->path);
  }
  return {};
}

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

RunState Trainer::state() const {
  RunState out;
  out.step = clock_.step;
  out.tokens = feed_.tokens();
  out.seed = config_.seed;
  out.data_hash = feed_.data_hash();
  out.data_fingerprint = task_->data_fingerprint();
  out.scaler = scaler_.state();
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
  scaler_.restore(state.scaler);
}

}  // namespace fovea::train
