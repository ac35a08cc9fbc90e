#include "train/evaluator.h"

#include <algorithm>

#include "core/error.h"
#include "train/feed.h"

namespace fovea::train {

Ctx quiet_context(const Ctx& ctx) {
  Ctx quiet{ctx.device, ctx.stream, ctx.activations};
  quiet.precision = ctx.precision;
  quiet.seed = ctx.seed;
  quiet.fuse = ctx.fuse;
  return quiet;
}

Evaluator::Evaluator(Task& task, Split split, std::int64_t max_batches)
    : task_(task), split_(split), max_batches_(max_batches) {}

Evaluation Evaluator::run(const Ctx& ctx, std::vector<double>* losses) {
  const data::EvalLoader& loader = task_.held_out(split_);
  Evaluation out;
  out.batches = max_batches_ > 0 ? std::min(max_batches_, loader.batches()) : loader.batches();
  out.metrics.losses = losses;
  Ctx quiet = quiet_context(ctx);
  for (std::int64_t i = 0; i < out.batches; ++i) {
    const data::Batch batch = loader.at(i);
    task_.score(quiet, on_device(batch, ctx.stream, task_.vocabulary()), out.metrics);
    out.examples = std::min(out.examples + batch.tokens.size(0), loader.examples());
  }
  out.metrics.losses = nullptr;
  task_.count(split_, out.examples, out.metrics);
  out.report = task_.report(out.metrics);
  const auto watched = std::find_if(out.report.begin(), out.report.end(), [&](const auto& entry) {
    return entry.first == task_.watched();
  });
  FOVEA_ASSERT(watched != out.report.end());
  out.watched = watched->second;
  return out;
}

}  // namespace fovea::train
