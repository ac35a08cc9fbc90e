#include "train/agreed_start.h"

#include <string>

#include "core/text.h"
#include "train/early_stop.h"
#include "train/run_status.h"

namespace fovea::train {

namespace {

// The folder's run if it ended by itself, this configuration has nothing to add, and its closing
// evaluation was made.
std::optional<TrainResult> finished_before(const RunConfig& config, const RunFolder& folder,
                                           const Start& start) {
  if (!start.checkpoint || !start.own) return std::nullopt;
  const RunState& state = start.checkpoint->state();
  EarlyStop early_stop(config.eval.patience, false);
  early_stop.restore(state.best);
  const std::int64_t planned = config.planned_steps();
  const bool ended = (planned > 0 && state.step >= planned) || early_stop.gives_up() ||
                     (config.train.max_seconds > 0 && state.seconds >= config.train.max_seconds);
  const std::optional<RunStatus> status = read_status(folder.path());
  if (!ended || !status || !status->ended || status->step != state.step) return std::nullopt;
  return TrainResult{Ending::already_finished,      state.step,     planned, folder.path(),
                     folder.checkpoint(state.step), status->metrics};
}

}  // namespace

AgreedStart agree_on_start(const RunConfig& config, const RunFolder& folder, const Ranks& ranks) {
  AgreedStart agreed;
  Start& out = agreed.start;
  std::optional<TrainResult>& done = agreed.done;
  std::string found;
  if (ranks.is_first()) {
    out = choose_start(config, folder);
    done = finished_before(config, folder, out);
    if (ranks.size() == 1) return agreed;
    found = cat(done ? 'd' : '-', out.own ? 'o' : '-',
                out.checkpoint ? out.checkpoint->path() : std::string());
  }
  found = ranks.from_first(found);
  if (ranks.is_first()) return agreed;
  out.own = found.at(1) == 'o';
  if (found.size() > 2) out.checkpoint.emplace(found.substr(2));
  if (found.front() == 'd') {
    done = TrainResult{Ending::already_finished, out.checkpoint->state().step,
                       config.planned_steps(),   folder.path(),
                       out.checkpoint->path(),   {}};
  }
  return agreed;
}

}  // namespace fovea::train
