#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "autograd/ops/elementwise.h"
#include "core/error.h"
#include "core/log.h"
#include "core/range.h"
#include "core/text.h"
#include "dist/halving.h"
#include "kernels/basic.h"
#include "train/step_tail.h"
#include "train/tuning_table.h"

namespace fovea::train {

namespace {

// After so many steps in a row without an update the run has diverged: fp16 starts at 2^16, so its
// scale has been at 1 for a while.
constexpr double kMostSkipped = 20;

void add_to(Ctx& ctx, const Tensor& root, std::int64_t elements, std::int64_t slot,
            const Var& value) {
  const Tensor to = root.slice(0, elements + slot, elements + slot + 1);
  FOVEA_ON(ctx.device, accumulate(ctx.stream.ref(), to.view(), value.value().reshape({1}).view()));
}

DType travel_dtype(const DistributedConfig& config) {
  return config.reduce_dtype == ReduceDType::bf16   ? DType::bf16
         : config.reduce_dtype == ReduceDType::fp16 ? DType::f16
                                                    : DType::f32;
}

optim::MomentCut moment_cut(const DistributedConfig& config, const Ranks& ranks) {
  if (config.zero == 0 || ranks.size() == 1) return {};
  return [rank = ranks.rank(), size = ranks.size()](std::int64_t elements) {
    const dist::Shard shard = dist::shard_of(elements, kNormChunk, rank, size);
    return optim::MomentRange{shard.begin, shard.end};
  };
}

std::vector<dist::Stretch> stretches_of(const optim::ParameterStore& store) {
  std::vector<dist::Stretch> out;
  for (std::size_t i = 0; i < store.segments().size(); ++i)
    out.push_back({store.segments()[i].begin, store.gradients()[i]});
  return out;
}

std::int64_t address(const Tensor& x) {
  return x.defined() ? reinterpret_cast<std::intptr_t>(x.view().data) : 0;
}

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T v) { return std::isfinite(v); });
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Device device, std::unique_ptr<Task> task, Ranks ranks)
    : config_(config),
      persistent_before_(persistent_allocator(device).stats().live),
      stream_(device, threads_of(config.train, ranks.local_size)),
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
      clock_{0, config.planned_steps(), config.sched.warmup_steps},
      task_(task != nullptr ? std::move(task) : make_task(config)),
      ranks_(std::move(ranks)),
      store_(ctx_, task_->model(), optim::StoreMode::train, config.optim.no_decay,
             config.train.freeze, moment_cut(config.distributed, ranks_), config.optim.lr_scale),
      tree_(device, state_dtype(ctx_.precision), store_.elements() + kTail,
            micro_range(task_->loader().micro_batches(), ranks_.rank(), ranks_.size()).first,
            micro_range(task_->loader().micro_batches(), ranks_.rank(), ranks_.size()).last,
            config.distributed.reproducible ? dist::GradOrder::tree : dist::GradOrder::as_computed),
      feed_(task_->loader(), stream_, staging_, config.train.micro_order, config.seed,
            task_->vocabulary(), ranks_.rank(), ranks_.size()),
      scaler_(ctx_, {.max_norm = config.train.max_norm}, config.optim, store_.elements()),
      adamw_(config.optim),
      schedule_(config.optim.lr, config.sched, config.planned_steps(), config.model.n_embd),
      micro_graph_(stream_, activations_, config.train.graphs),
      last_graph_(stream_, activations_, config.train.graphs),
      update_graph_(stream_, activations_, config.train.graphs) {
  if (store_.parameters() == 0) throw ConfigError("train.freeze leaves nothing to train");
  if (ranks_.size() > 1) {
    reducer_.emplace(
        *ranks_.all, *ranks_.beside, stream_, stretches_of(store_), store_.elements(),
        state_dtype(ctx_.precision),
        dist::ReducerOptions{.bucket_elements = static_cast<std::int64_t>(
                                 config.distributed.bucket_mb * 1048576 / sizeof(float)),
                             .tree = config.distributed.reproducible,
                             .sharded = shards(),
                             .travel = travel_dtype(config.distributed)});
  }
  prepare_products(stream_, config.train);
  arithmetic_ = train::arithmetic(device, config.train);
  persistent_allocator(device).reset_peak();
}

std::optional<StepRecord> Trainer::advance(StopWish wish) {
  enqueue(wish);
  if (ctx_.device.is_cuda() && pending_.size() < 2) return std::nullopt;
  return complete();
}

std::optional<StepRecord> Trainer::flush() {
  if (pending_.empty()) return std::nullopt;
  return complete();
}

StepRecord Trainer::step() {
  flush();
  enqueue({});
  return complete();
}

void Trainer::enqueue(StopWish wish) {
  const Range whole("step");
  ranks_.session->at("forward and backward", clock_.step + 1);
  stage_at(0);
  task_->model().before_step(ctx_, clock_);
  Pending mine;
  mine.wish = wish;
  mine.targets = feed_.global_targets(clock_.step);
  scaler_.stage(staging_, schedule_.at(clock_.step), mine.targets);
  const std::vector<std::int64_t> micros = feed_.micro_batches(clock_.step);
  for (const std::int64_t micro : micros)
    micro_step(load(micro), micro == micros.back());
  mine.loaded = feed_.take_loaded();
  note_micro_batches(micros);
  const Tensor root = tree_.root(), gradient = root.slice(0, 0, store_.elements()),
               tail = root.slice(0, store_.elements(), store_.elements() + kTail);
  ranks_.session->at("update", clock_.step + 1);
  if (shards()) reducer_->scatter(gradient);
  if (reducer_) reduce_tail(tail, mine);
  {
    const Range range("update");
    update_graph_.run({address(gradient)}, [&] { update(gradient); });
  }
  ++clock_.step;
  task_->model().after_step(ctx_, clock_);
  task_->model().measure(clock_, mine.record.measures);
  send_results(tail, std::move(mine));
  say_tuned_products();
}

// Which products a step has is known once there was one.
void Trainer::say_tuned_products() {
  if (products_counted_ || config_.train.gemm_table.empty() || !ctx_.device.is_cuda()) return;
  products_counted_ = true;
  const ProductCount count = count_products(stream_);
  const std::string text = cat("tuned: ", count.tuned, " of the ", count.all,
                               " products of a step, by ", config_.train.gemm_table);
  if (count.tuned > 0)
    log::info(text);
  else
    log::warn(text);
}

// So that anybody can see from the ranks' logs that no micro-batch was left out or done twice.
void Trainer::note_micro_batches(const std::vector<std::int64_t>& micros) const {
  if (!reducer_ || ctx_.device.is_meta()) return;
  std::string list;
  for (const std::int64_t micro : micros)
    list += cat(" ", micro);
  log::note(cat("step ", clock_.step + 1, ": micro-batches", list));
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

// Adds the micro-batch's gradient to a zeroed buffer of the tree, and what the fixed tree allows to
// that; the last one also has the sums over all ranks.
void Trainer::micro_step(const data::Batch& batch, bool last) {
  const Tensor leaf = tree_.open(batch.index);
  const bool fresh = tree_.is_fresh(), reduces = last && reducer_ && !shards();
  const std::vector<Tensor> partners =
      reduces ? tree_.partners(batch.index) : std::vector<Tensor>();
  StepGraph::Key key{address(leaf), batch.tokens.size(0), batch.tokens.size(1),
                     has_aux_ ? batch.target_tokens : 0, fresh ? 1 : 0};
  for (const auto field : data::kBatchTensors)
    key.push_back(address(batch.*field));
  for (const Tensor& partner : partners)
    key.push_back(address(partner));
  const Range range("forward and backward");
  StepGraph& graph = reduces ? last_graph_ : micro_graph_;
  graph.run(key, [&] { forward_backward(batch, leaf, fresh, reduces ? &partners : nullptr); });
  if (reduces)
    tree_.close_added(batch.index);
  else
    tree_.close(ctx_, batch.index);
}

// `partners`: of the leaf that is reduced over all ranks; null: another one.
void Trainer::forward_backward(const data::Batch& batch, const Tensor& leaf, bool fresh,
                               const std::vector<Tensor>* partners) {
  tape_.clear();  // a capture that failed may have left something
  if (fresh) FOVEA_ON(ctx_.device, fill(stream_.ref(), leaf.view(), 0.0));
  const Tensor gradient = leaf.slice(0, 0, store_.elements());
  store_.bind_gradients(gradient);
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
  if (partners != nullptr) {
    for (const Tensor& partner : *partners) {
      const auto tail = [&](const Tensor& flat) {
        return flat.slice(0, store_.elements(), store_.elements() + kTail);
      };
      FOVEA_ON(ctx_.device, accumulate(stream_.ref(), tail(leaf).view(), tail(partner).view()));
    }
    reducer_->arm(gradient, *partners);
  }
  tape_.backward(ctx_, loss.sum, scaler_.seed(ctx_));
  if (partners != nullptr) reducer_->finish();
  ctx_.tape = nullptr;
}

// What the host knows joins the sums of the device, and all ranks learn all of it.
void Trainer::reduce_tail(const Tensor& tail, const Pending& mine) {
  TailSums sums{};
  sums[kSignalSlot] = mine.wish.signal ? 1 : 0;
  sums[kTimeSlot] = mine.wish.time ? 1 : 0;
  put_integer(sums, kHashSlot, mine.loaded.hash);
  put_integer(sums, kTokensSlot, static_cast<std::uint64_t>(mine.loaded.tokens));
  stage_tail(staging_, tail, sums);
  reducer_->reduce(tail);
}

void Trainer::update(const Tensor& gradient) {
  store_.take_tallies(ctx_, gradient);
  if (!shards()) {
    scaler_.decide(ctx_, gradient);  // finite, clip, scale
    adamw_.step(ctx_, store_, gradient, scaler_);
    return;
  }
  scaler_.measure(ctx_, gradient, store_.moments_begin(), store_.moments_end());
  ranks_.all->all_reduce(scaler_.partials().view(), dist::Reduce::sum, stream_);
  scaler_.decide(ctx_);
  adamw_.step(ctx_, store_, gradient, scaler_);
  dist::tree_all_gather(*ranks_.all, store_.masters(), kNormChunk, stream_);
  store_.refresh(ctx_);
}

void Trainer::send_results(const Tensor& tail, Pending pending) {
  pending.record.step = clock_.step;
  pending.record.max_steps = clock_.max_steps;
  if (free_results_.empty()) free_results_.push_back(host_memory(stream_, kResultBytes));
  pending.results = std::move(free_results_.back());
  free_results_.pop_back();
  if (ctx_.device.is_meta()) {
    const StepScalars none;
    std::memset(pending.results.get(), 0, kResultBytes);
    std::memcpy(pending.results.get(), &none, sizeof none);
  } else {
    const Tensor used = tail.slice(0, 0, kUsedSlots);
    stream_.copy(pending.results.get(), scaler_.scalars().view().data, sizeof(StepScalars));
    stream_.copy(static_cast<char*>(pending.results.get()) + sizeof(StepScalars), used.view().data,
                 static_cast<std::size_t>(used.bytes()));
  }
  pending.arrived = stream_.record();
  pending_.push_back(std::move(pending));
}

StepRecord Trainer::complete() {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  const bool waits_for_others = ctx_.device.is_cuda() && reducer_;
  if (waits_for_others) ranks_.session->enter_collective();
  pending.arrived.synchronize();
  if (waits_for_others) ranks_.session->leave_collective();
  const TailSums tail = tail_of(pending.results.get(), state_dtype(ctx_.precision));
  const double loss = tail[kLossSlot], aux = tail[kAuxSlot];
  StepScalars scalars;
  std::memcpy(static_cast<void*>(&scalars), pending.results.get(), sizeof scalars);
  free_results_.push_back(std::move(pending.results));
  StepRecord out = std::move(pending.record);
  Feed::Loaded loaded = pending.loaded;
  out.stop_signal = pending.wish.signal;
  out.stop_time = pending.wish.time;
  if (reducer_ && !ctx_.device.is_meta()) {
    loaded = {get_integer(tail, kHashSlot),
              static_cast<std::int64_t>(get_integer(tail, kTokensSlot))};
    out.stop_signal = tail[kSignalSlot] != 0;
    out.stop_time = tail[kTimeSlot] != 0;
  }
  feed_.finish_step(loaded);
  out.tokens = feed_.tokens();
  out.data_hash = feed_.data_hash();
  check_finite(out, loss, scalars);
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
  return Evaluator(*task_, split, max_batches).run(ctx_, nullptr, ranks_);
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

}  // namespace fovea::train
