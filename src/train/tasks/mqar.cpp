// Multi-query associative recall: loss and accuracy at query positions only. data.md 6.2.

#include "train/tasks/decoder_task.h"
#include "train/tasks/scores.h"

namespace fovea::train {

namespace {

class MqarTask final : public DecoderTask {
 public:
  using DecoderTask::DecoderTask;

  Report report(const Metrics& metrics) const override {
    const auto targets = static_cast<double>(metrics.targets);
    return {{"loss", metrics.loss_sum / targets},
            {"accuracy", sum_of(metrics, "correct") / targets},
            {"targets", targets}};
  }
  std::string_view watched() const override { return "accuracy"; }
  bool larger_is_better() const override { return true; }
};

}  // namespace

TaskSpec mqar_task() {
  return {"mqar", "recalls values by their keys; scored at the queries",
          [](const RunConfig& config) -> std::unique_ptr<Task> {
            return std::make_unique<MqarTask>(config);
          }};
}

}  // namespace fovea::train
