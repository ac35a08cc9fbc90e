// Language modelling: the next token, everywhere.

#include <cmath>
#include <numbers>

#include "train/tasks/decoder_task.h"
#include "train/tasks/scores.h"

namespace fovea::train {

namespace {

class LmTask final : public DecoderTask {
 public:
  explicit LmTask(const RunConfig& config) : DecoderTask(config), protocol_(config.eval.protocol) {}

  // Bytes are known where the text is: data::EvalSource::scored().
  void count(Split split, std::int64_t examples, Metrics& into) override {
    const data::EvalSource* const source = text_of(split);
    const auto text = source == nullptr ? std::nullopt : source->scored(examples);
    if (text) into.sums["bytes"] += static_cast<double>(text->bytes);
  }

  const data::EvalSource* text_of(Split split) override {
    held_out(split);
    const auto found = texts_.find(split);
    return found == texts_.end() ? nullptr : found->second;
  }

  // "nats" and "targets" are the sum and the count that everything else is made of (data.md 3.1).
  Report report(const Metrics& metrics) const override {
    const auto targets = static_cast<double>(metrics.targets);
    const double loss = metrics.loss_sum / targets;
    const auto bytes = metrics.sums.find("bytes");
    const bool has_bytes = bytes != metrics.sums.end() && bytes->second > 0;
    Report out{{"loss", loss}, {"perplexity", std::exp(loss)}};
    if (has_bytes)
      out.emplace_back("bits_per_byte", metrics.loss_sum / (bytes->second * std::numbers::ln2));
    out.emplace_back("accuracy", sum_of(metrics, "correct") / targets);
    out.emplace_back("nats", metrics.loss_sum);
    out.emplace_back("targets", targets);
    if (has_bytes) out.emplace_back("bytes", bytes->second);
    return out;
  }

 protected:
  TaskData::Sources open_held_out(Split split) override {
    const data::DataConfig& config = data().config();
    if (config.kind != "text" && config.kind != "tokens") return DecoderTask::open_held_out(split);
    auto source = std::make_unique<data::EvalSource>(data::open_eval_text(config, split), protocol_,
                                                     config.pack);
    for (const data::EvalPart& part : source->text().parts)
      data().require_vocabulary(part.split.vocab);
    texts_[split] = source.get();
    TaskData::Sources out;
    out.push_back(std::move(source));
    return out;
  }

 private:
  data::EvalProtocol protocol_;
  std::map<Split, const data::EvalSource*> texts_;  // the sources of held_out()
};

}  // namespace

TaskSpec lm_task() {
  return {"lm", "predicts the next token of a text",
          [](const RunConfig& config) -> std::unique_ptr<Task> {
            return std::make_unique<LmTask>(config);
          }};
}

}  // namespace fovea::train
