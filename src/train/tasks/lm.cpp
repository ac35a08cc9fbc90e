// Language modelling: the next token, everywhere.

#include <cmath>
#include <numbers>

#include "train/tasks/decoder_task.h"

namespace fovea::train {

namespace {

class LmTask final : public DecoderTask {
 public:
  explicit LmTask(const RunConfig& config)
      : DecoderTask(config),
        bytes_(config.data.kind == "text" && config.data.tokenizer == "byte") {}

  // "nats" and "targets" are the sum and the count that everything else is made of (data.md 3.1).
  Report report(const Metrics& metrics) const override {
    const auto targets = static_cast<double>(metrics.targets);
    const double loss = metrics.loss_sum / targets;
    Report out{{"loss", loss}, {"perplexity", std::exp(loss)}};
    if (bytes_) out.emplace_back("bits_per_byte", metrics.loss_sum / (targets * std::numbers::ln2));
    const auto correct = metrics.sums.find("correct");
    out.emplace_back("accuracy", (correct == metrics.sums.end() ? 0 : correct->second) / targets);
    out.emplace_back("nats", metrics.loss_sum);
    out.emplace_back("targets", targets);
    if (bytes_) out.emplace_back("bytes", targets);
    return out;
  }

 private:
  bool bytes_;
};

}  // namespace

TaskSpec lm_task() {
  return {"lm", "predicts the next token of a text",
          [](const RunConfig& config) -> std::unique_ptr<Task> {
            return std::make_unique<LmTask>(config);
          }};
}

}  // namespace fovea::train
