// Losses of single targets: saved, by random windows. See text_eval.h.

#include <cstddef>

#include "core/error.h"
#include "data/loader.h"
#include "data/random_windows.h"
#include "data/safetensors.h"
#include "train/eval_rows.h"
#include "train/feed.h"
#include "train/text_eval.h"

namespace fovea::train {

RandomEstimate random_estimate(Task& task, const data::EvalSource& source, const Ctx& ctx,
                               std::int64_t batches, std::int64_t micro_batch) {
  const data::RandomWindows windows(source.text(), source.windows().cut().context,
                                    batches * data::kRandomBatch);
  const data::EvalLoader loader(windows, eval_rows(micro_batch, windows.seq_len()));
  Metrics metrics;
  Ctx quiet = quiet_context(ctx);
  for (std::int64_t i = 0; i < loader.batches(); ++i)
    task.score(quiet, on_device(loader.at(i), ctx.stream), metrics);
  return {batches, metrics.targets, metrics.loss_sum / static_cast<double>(metrics.targets)};
}

void write_losses(ReplacedFile& file, const data::EvalSource& source, std::int64_t windows,
                  const std::vector<double>& losses, DType dtype) {
  const auto count = static_cast<std::int64_t>(losses.size());
  const auto integers = [&] { return Tensor::empty({count}, DType::i32, kCpu, "losses"); };
  const Tensor targets = integers(), document = integers(), position = integers();
  std::vector<data::EvalSource::Target> of_window;
  std::int64_t at = 0;
  for (std::int64_t window = 0; window < windows; ++window) {
    of_window.clear();
    source.targets_of(window, of_window);
    for (const data::EvalSource::Target& target : of_window) {
      FOVEA_ASSERT(at < count);
      targets.data<std::int32_t>()[at] = target.id;
      document.data<std::int32_t>()[at] = static_cast<std::int32_t>(target.document);
      position.data<std::int32_t>()[at++] = static_cast<std::int32_t>(target.place);
    }
  }
  FOVEA_ASSERT(at == count);
  data::write_safetensors(
      file.temporary(),
      std::vector<data::NamedTensor>{{"losses", Tensor::from(losses, {count}, dtype)},
                                     {"targets", targets},
                                     {"document", document},
                                     {"position", position}},
      {{"format", "fovea losses"}});
  file.finish();
}

}  // namespace fovea::train
