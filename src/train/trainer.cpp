#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "autograd/ops/elementwise.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/isa.h"
#include "core/range.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "train/import/model_keys.h"
#include "train/tuning_table.h"

namespace fovea::train {

namespace {

// Behind the gradients of a buffer ride the loss and the auxiliary terms of its micro-batch, so
// that they are added by the same tree. A whole block keeps the flat buffers' alignment.
constexpr std::int64_t kTail = 64;
constexpr std::int64_t kLossSlot = 0, kAuxSlot = 1;
// After so many steps in a row without an update the run has diverged: fp16 starts at 2^16, so its
// scale has been at 1 for a while.
constexpr double kMostSkipped = 20;

void add_to(Ctx& ctx, const Tensor& root, std::int64_t elements, std::int64_t slot,
            const Var& value) {
  const Tensor to = root.slice(0, elements + slot, elements + slot + 1);
  FOVEA_ON(ctx.device, accumulate(ctx.stream.ref(), to.view(), value.value().reshape({1}).view()));
}

// What a step sends to the host: its scalars, then the loss and auxiliary sums in the state dtype.
constexpr std::size_t kResultBytes = sizeof(StepScalars) + 2 * sizeof(double);

std::array<double, 2> tail_of(const void* results, DType dtype) {
  const char* at = static_cast<const char*>(results) + sizeof(StepScalars);
  if (dtype == DType::f64) {
    std::array<double, 2> out{};
    std::memcpy(out.data(), at, sizeof out);
    return out;
  }
  std::array<float, 2> narrow{};
  std::memcpy(narrow.data(), at, sizeof narrow);
  return {static_cast<double>(narrow[0]), static_cast<double>(narrow[1])};
}

std::int64_t address(const Tensor& x) {
  return x.defined() ? reinterpret_cast<std::intptr_t>(x.view().data) : 0;
}

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T v) { return std::isfinite(v); });
}

}  // namespace

std::string why_not_cuda(const TrainConfig& config) {
  if (config.device != DeviceChoice::automatic) return {};
  if (config.precision == Precision::fp64) return "fp64 runs on the cpu only";
  if (const char* const asked = std::getenv("FOVEA_DEVICE");
      asked != nullptr && std::string_view(asked) == "cpu") {
    return "FOVEA_DEVICE is cpu";
  }
  return cuda::device_count() > 0 ? "" : cuda::why_none();
}

Device device_of(const TrainConfig& config) {
  constexpr Device kFirst{Device::Kind::cuda, 0};
  switch (config.device) {
    case DeviceChoice::cpu:
      return kCpu;
    case DeviceChoice::cuda:
      if (cuda::device_count() > 0) return kFirst;
      throw DeviceError(cat("train.device is cuda, but ", cuda::why_none(),
                            "; train.device: auto or cpu run without a GPU"));
    case DeviceChoice::automatic:
      break;
  }
  return why_not_cuda(config).empty() ? kFirst : kCpu;
}

int threads_of(const TrainConfig& config) {
  return config.threads > 0 ? config.threads : cpu_count();
}

Trainer::Trainer(const RunConfig& config, Device device, std::unique_ptr<Task> task)
    : config_(config),
      persistent_before_(persistent_allocator(device).stats().live),
      stream_(device, threads_of(config.train)),
      activations_(memory_source(device)),
      staging_(stream_),
      device_at_(device.is_cuda() ? Tensor::empty({2}, DType::i64, device, "step_state")
                                  : Tensor()),
      ctx_{device,
           stream_,
           activations_,
           device.is_cuda() ? device_at_.view().ptr<const StepState>() : &at_,
           nullptr,
           true,
           config.train.precision,
           config.seed,
           config.fuse},
      clock_{0, config.planned_steps()},
      task_(task != nullptr ? std::move(task) : make_task(config)),
      ranks_(dist::solo()),
      store_(ctx_, task_->model(), optim::StoreMode::train, config.optim.no_decay,
             config.train.freeze),
      tree_(device, state_dtype(ctx_.precision), store_.elements() + kTail,
            task_->loader().micro_batches(),
            config.distributed.reproducible ? dist::GradOrder::tree : dist::GradOrder::as_computed),
      feed_(task_->loader(), stream_, staging_, config.train.micro_order, config.seed,
            task_->vocabulary(), ranks_->rank(), ranks_->size()),
      scaler_(ctx_, {.max_norm = config.train.max_norm}, config.optim, store_.elements()),
      adamw_(config.optim),
      schedule_(config.optim.lr, config.sched, config.planned_steps(), config.model.n_embd),
      micro_graph_(stream_, activations_, config.train.graphs),
      update_graph_(stream_, activations_, config.train.graphs) {
  if (store_.parameters() == 0) throw ConfigError("train.freeze leaves nothing to train");
  stream_.set_tf32(config.train.precision == Precision::tf32);
  if (const std::string& path = config.train.gemm_table; !path.empty())
    apply_tuning(stream_, read_tuning_table(path), path);
  persistent_allocator(device).reset_peak();
}

std::optional<StepRecord> Trainer::advance() {
  enqueue();
  if (ctx_.device.is_cuda() && pending_.size() < 2) return std::nullopt;
  return complete();
}

std::optional<StepRecord> Trainer::flush() {
  if (pending_.empty()) return std::nullopt;
  return complete();
}

StepRecord Trainer::step() {
  flush();
  enqueue();
  return complete();
}

void Trainer::enqueue() {
  const Range whole("step");
  stage_at(0);
  task_->model().before_step(ctx_, clock_);
  const std::int64_t targets = feed_.global_targets(clock_.step);
  scaler_.stage(staging_, schedule_.at(clock_.step), targets);
  for (const std::int64_t micro : feed_.micro_batches(clock_.step)) {
    const data::Batch batch = load(micro);
    micro_step(batch);
    tree_.close(ctx_, batch.index);  // adds what the fixed tree allows
  }
  const Tensor root = tree_.root(), gradient = root.slice(0, 0, store_.elements());
  {
    const Range range("update");
    update_graph_.run({address(gradient)}, [&] { update(gradient); });
  }
  feed_.finish_step();
  ++clock_.step;
  task_->model().after_step(ctx_, clock_);
  send_results(root, targets);
}

// The micro-batch, and its place in the run, on the device.
data::Batch Trainer::load(std::int64_t micro) {
  const Range range("stage batch");
  data::Batch batch = feed_.load(clock_.step, micro);
  stage_at(batch.first_sample);
  return batch;
}

void Trainer::stage_at(std::int64_t first_sample) {
  at_ = {clock_.step, first_sample};
  if (device_at_.defined()) staging_.upload(device_at_.view().data, &at_, sizeof at_);
}

// Adds the micro-batch's gradient to a zeroed buffer of the tree.
void Trainer::micro_step(const data::Batch& batch) {
  const Tensor leaf = tree_.open(batch.index);
  const bool fresh = tree_.is_fresh();
  StepGraph::Key key{address(leaf), batch.tokens.size(0), batch.tokens.size(1),
                     has_aux_ ? batch.target_tokens : 0, fresh ? 1 : 0};
  for (const Tensor* tensor :
       {&batch.tokens, &batch.targets, &batch.positions, &batch.weights, &batch.segments}) {
    key.push_back(address(*tensor));
  }
  const Range range("forward and backward");
  micro_graph_.run(key, [&] { forward_backward(batch, leaf, fresh); });
}

void Trainer::forward_backward(const data::Batch& batch, const Tensor& leaf, bool fresh) {
  tape_.clear();  // a capture that failed may have left something
  if (fresh) FOVEA_ON(ctx_.device, fill(stream_.ref(), leaf.view(), 0.0));
  store_.bind_gradients(leaf.slice(0, 0, store_.elements()));
  ctx_.tape = &tape_;
  Loss loss = task_->forward(ctx_, batch);
  add_to(ctx_, leaf, store_.elements(), kLossSlot, loss.sum);
  task_->model().aux_loss(ctx_, loss.aux);
  if (!loss.aux.empty()) {
    has_aux_ = true;
    Var aux = loss.aux.front();
    for (std::size_t i = 1; i < loss.aux.size(); ++i)
      aux = add(ctx_, aux, loss.aux[i]);
    aux = scale(ctx_, aux, static_cast<double>(loss.targets));  // weighs like the sum it joins
    add_to(ctx_, leaf, store_.elements(), kAuxSlot, aux);
    loss.sum = add(ctx_, loss.sum, aux);
  }
  tape_.backward(ctx_, loss.sum, scaler_.seed(ctx_));
  ctx_.tape = nullptr;
}

void Trainer::update(const Tensor& gradient) {
  scaler_.decide(ctx_, gradient);  // finite, clip, scale
  adamw_.step(ctx_, store_, gradient, scaler_);
}

void Trainer::send_results(const Tensor& root, std::int64_t targets) {
  Pending out;
  out.targets = targets;
  out.record.step = clock_.step;
  out.record.max_steps = clock_.max_steps;
  out.record.tokens = feed_.tokens();
  out.record.data_hash = feed_.data_hash();
  if (free_results_.empty()) free_results_.push_back(host_memory(stream_, kResultBytes));
  out.results = std::move(free_results_.back());
  free_results_.pop_back();
  if (ctx_.device.is_meta()) {
    const StepScalars none;
    std::memset(out.results.get(), 0, kResultBytes);
    std::memcpy(out.results.get(), &none, sizeof none);
  } else {
    const Tensor tail = root.slice(0, store_.elements(), store_.elements() + 2);
    stream_.copy(out.results.get(), scaler_.scalars().view().data, sizeof(StepScalars));
    stream_.copy(static_cast<char*>(out.results.get()) + sizeof(StepScalars), tail.view().data,
                 static_cast<std::size_t>(tail.bytes()));
  }
  out.arrived = stream_.record();
  pending_.push_back(std::move(out));
}

StepRecord Trainer::complete() {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  pending.arrived.synchronize();
  const auto [loss, aux] = tail_of(pending.results.get(), state_dtype(ctx_.precision));
  StepScalars scalars;
  std::memcpy(static_cast<void*>(&scalars), pending.results.get(), sizeof scalars);
  free_results_.push_back(std::move(pending.results));
  check_finite(pending.record, loss, scalars);
  StepRecord out = std::move(pending.record);
  out.loss = loss / static_cast<double>(pending.targets);
  if (aux != 0) out.aux = aux / static_cast<double>(pending.targets);
  out.grad_norm = scalars.norm;
  out.lr = scalars.lr;
  if (scaler_.scales()) out.scale = scalars.scale;
  out.skipped = static_cast<std::int64_t>(scalars.skipped);
  return out;
}

Evaluation Trainer::evaluate(Split split, std::int64_t max_batches) {
  const Range range("evaluate");
  return Evaluator(*task_, split, max_batches).run(ctx_);
}

// A skipped step is fp16's everyday way to find its scale; elsewhere it is an accident.
void Trainer::check_finite(const StepRecord& record, double loss, const StepScalars& decision) {
  const bool finite = decision.finite != 0 && std::isfinite(loss);
  const bool stops = !scaler_.scales() && config_.train.on_nonfinite == OnNonfinite::stop;
  if (finite || (!stops && decision.skipped_in_a_row < kMostSkipped)) return;
  const auto in_a_row = static_cast<std::int64_t>(decision.skipped_in_a_row);
  if (!stops) {
    throw NumericError(cat("step ", record.step, ": loss or gradient are not finite for ", in_a_row,
                           " steps; loss ", loss,
                           scaler_.scales() ? cat("; scale fell to ", decision.scale) : "",
                           first_not_finite(), "; last good step ", record.step - in_a_row));
  }
  throw NumericError(cat("step ", record.step, ": ",
                         std::isfinite(loss) ? "the gradient" : "the loss", " is not finite; loss ",
                         loss, first_not_finite(), "; last good step ", record.step - 1,
                         "; lower optim.lr, or let train.on_nonfinite: skip leave out such steps"));
}

// Looks at the newest gradient: on a GPU it may be of the step after.
std::string Trainer::first_not_finite() const {
  if (ctx_.device.is_meta()) return {};
  const Tensor root = tree_.root();
  const Tensor gradient = ctx_.device.is_cpu() ? root : root.to(kCpu, ctx_.stream);
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
