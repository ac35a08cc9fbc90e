#include "train/train.h"

#include <optional>
#include <span>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/source.h"
#include "train/checkpoint.h"
#include "train/checkpoint_tokenizer.h"
#include "train/early_stop.h"
#include "train/environment.h"
#include "train/pace.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/run_status.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

bool due(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

// One start of a run, from its folder's last checkpoint to the next stop.
class Run {
 public:
  Run(const RunConfig& config, const TrainOptions& options, const RunFolder& folder,
      const Start& start)
      : config_(config),
        options_(options),
        folder_(folder),
        trainer_(config, device_of(config.train)),
        pace_(trainer_, config, own_state(start).seconds),
        early_stop_(config.eval.patience, trainer_.task().larger_is_better()),
        log_(folder.path(), own_state(start).metrics, own_state(start).perf),
        tokenizer_(
            tokenizer_of_run(config, start.checkpoint ? start.checkpoint->path() : std::string())) {
    if (start.checkpoint) {
      trainer_.resume(*start.checkpoint);
      early_stop_.restore(start.checkpoint->state().best);
      if (start.own) saved_at_ = trainer_.clock().step;
    } else if (!config.train.init_from.empty()) {
      const ImportedModel source = import_model(config.train.init_from);
      trainer_.start_from(source);
      log::info(cat("weights from train.init_from: ", source.path, " (", source.layout, ")"));
    }
    folder_.write("config.yaml", config_.resolved.yaml());
    folder_.write("overrides.txt",
                  options_.overrides.empty() ? "" : join(options_.overrides, "\n") + "\n");
    folder_.write("environment.json",
                  environment_json(trainer_.stream().device(), config_.train.precision,
                                   threads_of(config_.train), trainer_.clock().step));
    write_header(start);
    find_held_out();
    status("running");
  }

  TrainResult run(const StopSignal& signal) {
    std::optional<Ending> ending;
    while (!(ending = reason_to_end()) && !signal.requested()) {
      if (const std::optional<StepRecord> record = trainer_.advance()) report(*record);
      const std::int64_t step = trainer_.clock().step;
      if (due(step, config_.eval.interval)) evaluate();
      if (due(step, config_.ckpt.interval) || best_is_unsaved()) save();
    }
    catch_up();
    if (saved_at_ != trainer_.clock().step) save();
    if (signal.requested()) return finish(Ending::signal);
    closing_evaluation();
    return finish(*ending);
  }

  void failed(const std::string& why) noexcept {
    try {
      status("failed", why);
    } catch (const Error& e) {
      log::error(e.what());
    }
  }

 private:
  // What the folder's own files were committed to; nothing if the checkpoint is of another folder.
  static RunState own_state(const Start& start) {
    return start.checkpoint && start.own ? start.checkpoint->state() : RunState{};
  }

  std::optional<Ending> reason_to_end() const {
    const nn::Clock& clock = trainer_.clock();
    if (clock.max_steps > 0 && clock.step >= clock.max_steps) return Ending::finished;
    if (early_stop_.gives_up()) return Ending::early_stop;
    if (config_.train.max_seconds > 0 && pace_.seconds() >= config_.train.max_seconds)
      return Ending::max_time;
    return std::nullopt;
  }

  // Waits for the step that is still being computed: its record comes before what follows it.
  void catch_up() {
    if (const std::optional<StepRecord> record = trainer_.flush()) report(*record);
  }

  void report(const StepRecord& record) {
    if (record.step == 1 || due(record.step, config_.log.interval)) {
      log_.step(record, pace_.record());
    } else if (record.step == record.max_steps) {
      log::line(
          step_line(record, pace_.record()));  // for people only: a longer run has no such line
    }
  }

  bool best_is_unsaved() const {
    return config_.ckpt.keep_best && early_stop_.best().any &&
           early_stop_.best().step == trainer_.clock().step;
  }

  void find_held_out() {
    try {
      trainer_.task().held_out(Split::validation);
      evaluates_ = true;
    } catch (const IoError& e) {
      if (config_.eval.interval > 0) throw;
      log::warn(cat("nothing is evaluated: ", e.what()));
    }
  }

  void evaluate() {
    catch_up();
    const Pace::Event event(pace_);
    const Evaluation result = trainer_.evaluate(Split::validation, config_.eval.max_batches);
    evaluated_at_ = trainer_.clock().step;
    metrics_ = result.report;
    log_.evaluation(evaluated_at_, "validation", result.report);
    log_.event(evaluated_at_, "evaluation", event.seconds(), trainer_.memory().total());
    early_stop_.update(result.watched, evaluated_at_);
  }

  // Stands behind the checkpoint's mark: a run that is made longer drops it and computes what an
  // undisturbed one would. Where the schedule had one here, metrics.jsonl has it already.
  void closing_evaluation() {
    const std::int64_t step = trainer_.clock().step;
    if (!evaluates_ || evaluated_at_ == step) return;
    if (due(step, config_.eval.interval)) {
      metrics_ = trainer_.evaluate(Split::validation, config_.eval.max_batches).report;
    } else {
      evaluate();
    }
  }

  void save() {
    catch_up();
    const Pace::Event event(pace_);
    const std::int64_t step = trainer_.clock().step;
    log_.sync();
    RunState state = trainer_.state();
    state.best = early_stop_.best();
    state.seconds = pace_.seconds();
    state.metrics = log_.metrics();
    state.perf = log_.perf();
    state.arithmetic = arithmetic(trainer_.stream().device(), config_.train.precision);
    state.version = kVersion;
    state.config_yaml = config_.resolved.yaml();
    const TokenizerCopy* tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
    save_checkpoint(trainer_.stream(), folder_.checkpoint(step), trainer_.task().model(),
                    trainer_.store(), state, checkpoint_config(config_, tokenizer),
                    tokenizer != nullptr ? std::span<const data::TokenizerFile>(tokenizer->files)
                                         : std::span<const data::TokenizerFile>());
    saved_at_ = step;
    folder_.set_latest(step);
    const BestSoFar& best = early_stop_.best();
    folder_.prune(config_.ckpt.keep_last, config_.ckpt.keep_every,
                  config_.ckpt.keep_best && best.any ? best.step : -1);
    log_.event(step, "checkpoint", event.seconds(), trainer_.memory().total());
    status("running");
  }

  TrainResult finish(Ending ending) {
    log_.sync();
    if (options_.memory) log::info(trainer_.memory_report());
    status(name_of(ending));
    const std::int64_t step = trainer_.clock().step;
    log::info(cat(name_of(ending), " at step ", step, ": ", folder_.checkpoint(step)));
    return {ending,  step, trainer_.clock().max_steps, folder_.path(), folder_.checkpoint(step),
            metrics_};
  }

  void status(std::string_view state, std::string_view message = {}) const {
    RunStatus out;
    out.status = state;
    out.step = trainer_.clock().step;
    out.max_steps = trainer_.clock().max_steps;
    out.checkpoint_step = saved_at_;
    out.tokens = trainer_.feed().tokens();
    out.seconds = pace_.seconds();
    out.message = message;
    out.best = early_stop_.best();
    out.metrics = metrics_;
    folder_.write(kStatusName, status_json(out));
  }

  void write_header(const Start& start) {
    const Device device = trainer_.stream().device();
    const Arithmetic now = arithmetic(device, config_.train.precision);
    const int threads = threads_of(config_.train);
    const std::string where = device.is_cuda()
                                  ? cat(now.isa, ", ", now.blas_core)
                                  : cat(now.isa, ", BLAS core ", now.blas_core, ", ", threads,
                                        threads == 1 ? " thread" : " threads");
    log::info(cat("fovea ", kVersion, ", ", name_of(device), ": ", where, ", ", now.precision));
    if (!config_.train.gemm_table.empty())
      log::info(cat("products: tuned by ", config_.train.gemm_table));
    if (const std::string why = why_not_cuda(config_.train); !why.empty())
      log::info(cat("computing on the cpu: ", why));
    for (const std::string& line : trainer_.task().summary())
      log::info(line);
    log::info(cat("run folder: ", folder_.path()));
    if (start.checkpoint) log::info(cat("resuming from ", start.checkpoint->path()));
  }

  const RunConfig& config_;
  const TrainOptions& options_;
  const RunFolder& folder_;
  Trainer trainer_;
  Pace pace_;
  EarlyStop early_stop_;
  RunLog log_;
  std::optional<TokenizerCopy> tokenizer_;
  Report metrics_;
  bool evaluates_ = false;
  std::int64_t saved_at_ = -1, evaluated_at_ = -1;
};

}  // namespace

std::string_view name_of(Ending ending) {
  switch (ending) {
    case Ending::finished:
      return "finished";
    case Ending::already_finished:
      return "already_finished";
    case Ending::early_stop:
      return "early_stop";
    case Ending::max_time:
      return "max_time";
    case Ending::signal:
      return "stopped";
  }
  return "?";
}

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

TrainResult train(const RunConfig& config, const TrainOptions& options) {
  const RunFolder folder(config.out_dir);
  const StopSignal signal;
  log::to_file(folder.file("logs/rank_0000.log"));
  const Start start = choose_start(config, folder);
  if (std::optional<TrainResult> done = finished_before(config, folder, start)) {
    log::info(cat(folder.path(), ": the run is finished (", done->step, " steps): nothing to do"));
    return *done;
  }
  RunConfig whole = config;
  // Found once: a checkpoint must not read the data for it each time.
  if (whole.model.vocab_size == 0) whole.model.vocab_size = data::vocab_size(whole.data);
  Run run(whole, options, folder, start);
  try {
    return run.run(signal);
  } catch (const Error& e) {
    run.failed(e.what());
    throw;
  }
}

}  // namespace fovea::train
