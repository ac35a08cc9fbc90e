#include "train/tasks/decoder_task.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "models/build.h"
#include "train/eval_rows.h"

namespace fovea::train {

namespace {

models::ModelConfig model_config(const RunConfig& config) {
  models::ModelConfig out = config.model;
  if (out.vocab_size == 0) out.vocab_size = data::vocab_size(config.data);
  return out;
}

void add_up(Ctx& ctx, const CrossEntropy& loss, const Tensor& targets, Metrics& into) {
  const bool here = ctx.device.is_cpu();
  const std::vector<double> losses =
      (here ? loss.per_row : loss.per_row.to(kCpu, ctx.stream)).values();
  for (const double row : losses)
    into.loss_sum += row;
  double correct = 0;
  for (const double row : (here ? loss.correct : loss.correct.to(kCpu, ctx.stream)).values())
    correct += row;
  into.sums["correct"] += correct;
  if (into.losses == nullptr) return;
  const Tensor ids = here ? targets : targets.to(kCpu, ctx.stream);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (ids.data<std::int32_t>()[i] != data::kIgnored) into.losses->push_back(losses[i]);
  }
}

}  // namespace

DecoderTask::DecoderTask(const RunConfig& config)
    : data_(config.data),
      seed_(config.seed),
      shape_{config.train.global_batch_size, config.train.micro_batch_size},
      eval_micro_batch_(config.eval.micro_batch_size),
      recompute_(config.train.recompute),
      model_(models::build(model_config(config))) {}

void DecoderTask::require_vocabulary(std::int64_t ids) const {
  const int vocabulary = model_->config().vocab_size;
  if (vocabulary >= ids) return;
  throw ConfigError(
      cat("model.vocab_size is ", vocabulary, ", but the data has ", ids, " token ids"));
}

std::unique_ptr<data::Source> DecoderTask::open(Split split) const {
  require_vocabulary(data::vocab_size(data_));
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
    out.source = open_held_out(split);
    out.loader = std::make_unique<data::EvalLoader>(
        *out.source, eval_rows(eval_micro_batch_, out.source->seq_len()));
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
  const Tensor hidden =
      model_
          ->forward(ctx,
                    {.ids = batch.tokens, .positions = batch.positions, .segments = batch.segments})
          .hidden.value();
  const std::int64_t rows = batch.tokens.size(0);
  const std::int64_t group = std::min(eval_group(batch.tokens.size(1)), rows);
  // The head sees scored rows only, one behind the other, so each group gets its own.
  for (std::int64_t from = 0; from < rows; from += group) {
    const std::int64_t to = std::min(from + group, rows);
    const Tensor targets = batch.targets.slice(0, from, to);
    const CrossEntropy loss = model_->loss_of(ctx, Var(hidden.slice(0, from, to)), targets);
    if (!ctx.device.is_meta()) add_up(ctx, loss, targets, into);
  }
  if (!ctx.device.is_meta()) into.targets += batch.target_tokens;
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
    models::MultiHeadAttention& attention = model_->block(layer).attention();
    const std::string refused = attention.method().refused(), map = attention.map_text();
    const std::string now =
        cat(config.attention[static_cast<std::size_t>(layer)].kind, ", kernel ",
            attention.method().kernel(), refused.empty() ? "" : cat(" (", refused, ")"),
            map.empty() ? "" : cat("; ", map));
    if (now == last) continue;
    flush(layer);
    last = now;
  }
  flush(config.n_layer);
  return out;
}

}  // namespace fovea::train
