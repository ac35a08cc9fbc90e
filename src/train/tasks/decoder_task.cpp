#include "train/tasks/decoder_task.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "models/build.h"
#include "train/eval_rows.h"
#include "train/tasks/model_summary.h"
#include "train/tasks/scores.h"

namespace fovea::train {

DecoderTask::DecoderTask(const RunConfig& config)
    : recompute_(config.train.recompute),
      model_(models::build(model_of(config))),
      data_(config, model_->config().vocab_size) {}

TaskData::Sources DecoderTask::open_held_out(Split split) {
  TaskData::Sources out;
  out.push_back(data_.open(split));
  return out;
}

const data::EvalLoader& DecoderTask::held_out(Split split) {
  return data_.held_out(split, [&] { return open_held_out(split); });
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

Tensor DecoderTask::hidden_of(Ctx& ctx, const data::Batch& batch) {
  return model_
      ->forward(ctx,
                {.ids = batch.tokens, .positions = batch.positions, .segments = batch.segments})
      .hidden.value();
}

void DecoderTask::score(Ctx& ctx, const data::Batch& batch, Metrics& into) {
  const Tensor hidden = hidden_of(ctx, batch);
  // The head sees scored rows only, one behind the other, so each group gets its own.
  for_groups(batch.tokens.size(0), batch.tokens.size(1), [&](std::int64_t from, std::int64_t to) {
    const Tensor targets = batch.targets.slice(0, from, to);
    const CrossEntropy loss = model_->loss_of(ctx, Var(hidden.slice(0, from, to)), targets);
    if (!ctx.device.is_meta()) add_scores(ctx, loss, targets, into);
  });
  if (!ctx.device.is_meta()) into.targets += batch.target_tokens;
}

double DecoderTask::step_flops(bool executed) const {
  const models::TrainFlops flops =
      models::train_flops(*model_, data_.shape().global_batch, data_.config().seq_len, recompute_);
  return executed ? flops.executed : flops.useful;
}

std::vector<std::string> DecoderTask::summary() {
  std::vector<std::string> out{cat("data: ", data_.training().summary())};
  for (std::string& line : model_summary(*model_))
    out.push_back(std::move(line));
  return out;
}

}  // namespace fovea::train
