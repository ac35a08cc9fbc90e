// Classification of whole sequences: one label each. data.md 5.

#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "models/build.h"
#include "train/tasks/classification_task.h"
#include "train/tasks/model_summary.h"
#include "train/tasks/scores.h"

namespace fovea::train {

namespace {

// Sums of guesses: "correct " and the guess's name.
constexpr std::string_view kGuess = "correct ";

models::TransformerInput input_of(const data::Batch& batch, bool recompute) {
  return {.ids = batch.tokens,
          .positions = batch.positions,
          .segments = batch.segments,
          .key_valid = batch.key_valid,
          .recompute = recompute};
}

Tensor labels_of(const data::Batch& batch) {
  return batch.targets.reshape({batch.targets.size(0)});
}

}  // namespace

ClassificationTask::ClassificationTask(const RunConfig& config)
    : recompute_(config.train.recompute),
      model_(models::build_encoder(model_of(config))),
      data_(config, model_->config().vocab_size) {
  const int labels = data::classes_of(config.data), classes = model_->config().classes;
  if (classes < labels)
    throw ConfigError(cat("model.classes is ", classes, ", but the data has ", labels, " labels"));
}

const data::EvalLoader& ClassificationTask::held_out(Split split) {
  return data_.held_out(split, [&] {
    TaskData::Sources out;
    out.push_back(data_.open(split));
    return out;
  });
}

Loss ClassificationTask::forward(Ctx& ctx, const data::Batch& batch) {
  models::EncoderLoss loss = model_->loss(ctx, input_of(batch, recompute_), labels_of(batch));
  return {std::move(loss.sum), batch.target_tokens, std::move(loss.aux)};
}

void ClassificationTask::score(Ctx& ctx, const data::Batch& batch, Metrics& into) {
  const Tensor hidden = model_->forward(ctx, input_of(batch, false)).hidden.value();
  const Tensor labels = labels_of(batch);
  // A row's bits in the head depend on its place in the product, so each group gets its own.
  for_groups(batch.tokens.size(0), batch.tokens.size(1), [&](std::int64_t from, std::int64_t to) {
    const Tensor own = labels.slice(0, from, to);
    const Tensor valid = batch.key_valid.defined() ? batch.key_valid.slice(0, from, to) : Tensor();
    const CrossEntropy loss = model_->loss_of(ctx, Var(hidden.slice(0, from, to)), valid, own);
    if (!ctx.device.is_meta()) add_scores(ctx, loss, own, into);
  });
  if (!ctx.device.is_meta()) into.targets += batch.target_tokens;
}

void ClassificationTask::count(Split split, std::int64_t examples, Metrics& into) {
  held_out(split);
  for (const data::Source::Guess& guess : data_.opened(split).front()->guesses(examples))
    into.sums[cat(kGuess, guess.name)] += static_cast<double>(guess.correct);
}

Report ClassificationTask::report(const Metrics& metrics) const {
  const auto targets = static_cast<double>(metrics.targets);
  const double correct = sum_of(metrics, "correct"), accuracy = correct / targets;
  Report out{{"loss", metrics.loss_sum / targets},
             {"accuracy", accuracy},
             {"accuracy_error", standard_error(accuracy, targets)},
             {"correct", correct},
             {"targets", targets}};
  for (const auto& [name, sum] : metrics.sums) {
    if (name.starts_with(kGuess))
      out.emplace_back(cat("accuracy_of_", name.substr(kGuess.size())), sum / targets);
  }
  return out;
}

double ClassificationTask::step_flops(bool executed) const {
  const models::TrainFlops flops =
      models::train_flops(*model_, data_.shape().global_batch, data_.config().seq_len, recompute_);
  return executed ? flops.executed : flops.useful;
}

std::vector<std::string> ClassificationTask::summary() {
  std::vector<std::string> out{cat("data: ", data_.training().summary())};
  for (std::string& line : model_summary(*model_))
    out.push_back(std::move(line));
  return out;
}

TaskSpec classification_task() {
  return {"classification", "names the class of a whole sequence, with an encoder",
          [](const RunConfig& config) -> std::unique_ptr<Task> {
            return std::make_unique<ClassificationTask>(config);
          }};
}

}  // namespace fovea::train
