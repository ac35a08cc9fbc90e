#include "train/tasks/decoder_task.h"

#include "core/error.h"
#include "core/text.h"
#include "models/build.h"

namespace fovea::train {

namespace {

models::ModelConfig model_config(const RunConfig& config) {
  models::ModelConfig out = config.model;
  if (out.vocab_size == 0) out.vocab_size = data::vocab_size(config.data);
  return out;
}

}  // namespace

DecoderTask::DecoderTask(const RunConfig& config)
    : data_(config.data),
      seed_(config.seed),
      shape_{config.train.global_batch_size, config.train.micro_batch_size},
      eval_micro_batch_(config.eval.micro_batch_size),
      recompute_(config.train.recompute),
      model_(models::build(model_config(config))) {}

std::unique_ptr<data::Source> DecoderTask::open(Split split) const {
  const int ids = data::vocab_size(data_), vocabulary = model_->config().vocab_size;
  if (vocabulary < ids) {
    throw ConfigError(
        cat("model.vocab_size is ", vocabulary, ", but the data has ", ids, " token ids"));
  }
  return data::make_source(data_, data_.seq_len, split, seed_);
}

const data::Loader& DecoderTask::loader() {
  if (loader_ == nullptr) {
    source_ = open(Split::train);
    loader_ = std::make_unique<data::Loader>(*source_, shape_, seed_);
  }
  return *loader_;
}

std::string DecoderTask::data_fingerprint() {
  loader();
  return source_->fingerprint();
}

const data::EvalLoader& DecoderTask::held_out(Split split) {
  HeldOut& out = held_out_[split];
  if (out.loader == nullptr) {
    out.source = open(split);
    out.loader = std::make_unique<data::EvalLoader>(*out.source, eval_micro_batch_);
  }
  return *out.loader;
}

Loss DecoderTask::forward(Ctx& ctx, const data::Batch& batch) {
  models::DecoderLoss loss = model_->loss(ctx,
                                          {.ids = batch.tokens,
                                           .positions = batch.positions,
                                           .segments = batch.segments,
                                           .recompute = recompute_},
                                          batch.targets);
  return {std::move(loss.sum), batch.target_tokens, std::move(loss.aux)};
}

void DecoderTask::score(Ctx& ctx, const data::Batch& batch, Metrics& into) {
  const models::DecoderLoss loss = model_->loss(
      ctx, {.ids = batch.tokens, .positions = batch.positions, .segments = batch.segments},
      batch.targets);
  if (ctx.device.is_meta()) return;
  for (const double row : loss.per_row.values())
    into.loss_sum += row;
  double correct = 0;
  for (const double row : loss.correct.values())
    correct += row;
  into.sums["correct"] += correct;
  into.targets += batch.target_tokens;
}

double DecoderTask::step_flops(bool executed) const {
  const models::TrainFlops flops =
      models::train_flops(*model_, shape_.global_batch, data_.seq_len, recompute_);
  return executed ? flops.executed : flops.useful;
}

std::vector<std::string> DecoderTask::summary() {
  loader();
  std::vector<std::string> out{cat("data: ", source_->summary())};
  const models::ModelConfig& config = model_->config();
  out.push_back(cat("model: ", config.kind, ", ", config.n_layer, " layers, ", config.n_head,
                    " heads, width ", config.n_embd, ", vocabulary ", config.vocab_size, ", ",
                    human_count(static_cast<double>(models::parameter_count(*model_))),
                    " parameters"));
  // One line for each run of layers that use the same kernel.
  std::string last;
  int first = 0;
  const auto flush = [&](int end) {
    if (!last.empty())
      out.push_back(cat("attention of layers ", first, " to ", end - 1, ": ", last));
    first = end;
  };
  for (int layer = 0; layer < config.n_layer; ++layer) {
    const attention::Attention& method = model_->block(layer).attention().method();
    const std::string refused = method.refused();
    const std::string now = cat(config.attention[static_cast<std::size_t>(layer)].kind, ", kernel ",
                                method.kernel(), refused.empty() ? "" : cat(" (", refused, ")"));
    if (now == last) continue;
    flush(layer);
    last = now;
  }
  flush(config.n_layer);
  return out;
}

}  // namespace fovea::train
