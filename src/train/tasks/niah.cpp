// Needle in a haystack: exact match of one value, by length and by depth. data.md 6.1,
// elsaa.md 6.2.

#include "data/niah.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <span>

#include "core/text.h"
#include "kernels/basic.h"
#include "train/tasks/decoder_task.h"
#include "train/tasks/scores.h"

namespace fovea::train {

namespace {

// Sums of the test: "tried LENGTH" and "found LENGTH", perhaps with a depth behind it. Lengths have
// leading zeros here, so that their order is that of the numbers.
std::string key_of(std::string_view what, std::int64_t length, const std::string& depth) {
  std::string digits = cat(length);
  digits.insert(0, 8 - std::min<std::size_t>(8, digits.size()), '0');
  return cat(what, digits, depth.empty() ? "" : " ", depth);
}

// What one answer is worth.
struct Answer {
  double loss = 0;  // nats, over the whole vocabulary
  // Whether the largest logit is the target's: among all ids, and among those of values.
  bool of_all_ids = false, of_values = false;
};

Answer answer_of(std::span<const double> logits, std::int32_t target, data::IdRange values) {
  const auto largest = [&](std::size_t begin, std::size_t end) {
    return static_cast<std::int32_t>(
        std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(begin),
                         logits.begin() + static_cast<std::ptrdiff_t>(end)) -
        logits.begin());
  };
  const std::int32_t best = largest(0, logits.size());
  const double top = logits[static_cast<std::size_t>(best)];
  double total = 0;
  for (const double logit : logits)
    total += std::exp(logit - top);
  return {.loss = std::log(total) + (top - logits[static_cast<std::size_t>(target)]),
          .of_all_ids = best == target,
          .of_values = largest(static_cast<std::size_t>(values.begin),
                               static_cast<std::size_t>(values.end)) == target};
}

class NiahTask final : public DecoderTask {
 public:
  using DecoderTask::DecoderTask;

  void score(Ctx& ctx, const data::Batch& batch, Metrics& into) override {
    const Tensor hidden = hidden_of(ctx, batch);
    const Tensor targets = ctx.device.is_meta() ? Tensor() : batch.targets.to(kCpu, ctx.stream);
    const std::int64_t length = batch.tokens.size(1);
    for_groups(batch.tokens.size(0), length, [&](std::int64_t from, std::int64_t to) {
      const Tensor last = hidden.slice(0, from, to).slice(1, length - 1, length);
      const Tensor rows = ctx.empty(last.shape(), last.dtype(), "niah");
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), rows.view(), last.view()));
      const Tensor logits = decoder().head(ctx, Var(rows)).value();
      if (ctx.device.is_meta()) return;
      const std::vector<double> all = logits.to(kCpu, ctx.stream).values();
      const std::size_t width = all.size() / static_cast<std::size_t>(to - from);
      for (std::int64_t row = from; row < to; ++row) {
        const std::int32_t target = targets.data<std::int32_t>()[(row + 1) * length - 1];
        if (target == data::kIgnored) continue;  // fills up the batch
        const auto own =
            std::span(all).subspan(static_cast<std::size_t>(row - from) * width, width);
        add(answer_of(own, target, data::niah_values(niah())), length,
            batch.groups.empty() ? std::string() : batch.groups[static_cast<std::size_t>(row)],
            into);
      }
    });
  }

  Report report(const Metrics& metrics) const override {
    const auto targets = static_cast<double>(metrics.targets);
    const double accuracy = sum_of(metrics, "right") / targets;
    Report out{{"loss", metrics.loss_sum / targets},
               {"accuracy", accuracy},
               {"accuracy_error", standard_error(accuracy, targets)},
               {"accuracy_of_all_ids", sum_of(metrics, "right of all ids") / targets},
               {"accuracy_of_values", sum_of(metrics, "right of values") / targets},
               {"targets", targets}};
    for (const auto& [key, count] : metrics.sums) {
      if (!key.starts_with(kAll)) continue;
      const std::string place = key.substr(kAll.size());
      std::int64_t length = 0;
      std::from_chars(place.data(), place.data() + 8, length);
      const std::string depth = place.size() > 8 ? cat("_depth_", place.substr(9)) : "";
      out.emplace_back(cat("recall_", length, depth), sum_of(metrics, cat(kRight, place)) / count);
    }
    return out;
  }
  bool reports_by_results() const override { return true; }  // recall at each length and depth
  std::string_view watched() const override { return "accuracy"; }
  bool larger_is_better() const override { return true; }

 protected:
  TaskData::Sources open_held_out(Split split) override {
    if (split != Split::test) return DecoderTask::open_held_out(split);
    data().require_vocabulary(data::niah_vocab(niah()));
    return data::niah_test(niah(), data().config().seq_len, data().seed());
  }

 private:
  static constexpr std::string_view kAll = "tried ", kRight = "found ";

  const data::NiahConfig& niah() const { return data().config().niah; }

  void add(const Answer& answer, std::int64_t length, const std::string& depth,
           Metrics& into) const {
    // What each layout's source calls right.
    const bool right =
        niah().layout == data::NiahLayout::elsaa ? answer.of_all_ids : answer.of_values;
    into.targets += 1;
    into.loss_sum += answer.loss;
    if (into.losses != nullptr) into.losses->push_back(answer.loss);
    into.sums["right"] += right ? 1 : 0;
    into.sums["right of all ids"] += answer.of_all_ids ? 1 : 0;
    into.sums["right of values"] += answer.of_values ? 1 : 0;
    if (depth.empty()) return;
    for (const std::string& part : {std::string(), depth}) {
      into.sums[key_of(kAll, length, part)] += 1;
      into.sums[key_of(kRight, length, part)] += right ? 1 : 0;
    }
  }
};

}  // namespace

TaskSpec niah_task() {
  return {"niah", "recalls the value of one key from a haystack; exact match by length and depth",
          [](const RunConfig& config) -> std::unique_ptr<Task> {
            return std::make_unique<NiahTask>(config);
          }};
}

}  // namespace fovea::train
