#include "train/train.h"

#include <atomic>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/source.h"
#include "dist/world.h"
#include "train/agreed_start.h"
#include "train/checkpoint.h"
#include "train/checkpoint_tokenizer.h"
#include "train/checkpoint_writer.h"
#include "train/early_stop.h"
#include "train/environment.h"
#include "train/lost_run.h"
#include "train/micro_batch.h"
#include "train/pace.h"
#include "train/rank_checks.h"
#include "train/ranks.h"
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
      const Start& start, const Ranks& ranks, Device device)
      : config_(config),
        options_(options),
        folder_(folder),
        ranks_(ranks),
        trainer_(config, device, nullptr, ranks),
        pace_(trainer_, config, own_state(start).seconds),
        early_stop_(config.eval.patience, trainer_.task().larger_is_better()),
        tokenizer_(
            tokenizer_of_run(config, start.checkpoint ? start.checkpoint->path() : std::string())),
        writer_(trainer_.stream(), trainer_.task().model(), trainer_.store(),
                {.rank = ranks.rank(),
                 .ranks = ranks.size(),
                 .launch_id = ranks.session->launch_id(),
                 .async = config.ckpt.async == AsyncSave::always ||
                          (config.ckpt.async == AsyncSave::automatic && device.is_cuda()),
                 .sharded = config.distributed.zero > 0 && ranks.size() > 1}) {
    if (ranks.is_first())
      log_.emplace(folder.path(), own_state(start).metrics, own_state(start).perf);
    if (start.checkpoint) {
      trainer_.resume(*start.checkpoint);
      early_stop_.restore(start.checkpoint->state().best);
      if (start.own) committed_at_ = saved_at_ = trainer_.clock().step;
    } else if (!config.train.init_from.empty()) {
      const ImportedModel source = import_model(config.train.init_from);
      trainer_.start_from(source);
      log::info(cat("weights from train.init_from: ", source.path, " (", source.layout, ")"));
    }
    require_same_computation(ranks, config_, trainer_.task().data_fingerprint(),
                             trainer_.arithmetic());
    write("config.yaml", config_.resolved.yaml());
    write("overrides.txt", options_.overrides.empty() ? "" : join(options_.overrides, "\n") + "\n");
    write("environment.json", environment_json(device, config_.train, trainer_.stream().threads(),
                                               trainer_.clock().step, ranks.size()));
    write_header(start);
    find_held_out();
    status("running");
  }

  TrainResult run(const StopSignal& signal) {
    std::optional<Ending> ending = reason_to_end();
    if (!ending && ranks_.size() == 1 && signal.requested()) ending = Ending::signal;
    while (!ending) {
      const StopWish wish{signal.requested(), ranks_.is_first() && time_is_up()};
      const std::optional<StepRecord> record = trainer_.advance(wish);
      if (record) report(*record);
      note_written();
      const std::int64_t step = trainer_.clock().step;
      if (ranks_.size() > 1 && due(step, config_.distributed.check_interval)) {
        catch_up();
        ranks_.session->at("comparison of weights", step);
        compare_weights(ranks_, step, trainer_.weights_fingerprint());
      }
      if (due(step, config_.eval.interval)) evaluate();
      if (due(step, config_.ckpt.interval) || best_is_unsaved()) save();
      ending = reason_to_end();
      // Several ranks stop where all have heard of it: with a step's record.
      if (ranks_.size() == 1 ? signal.requested() : agreed_.signal) ending = Ending::signal;
    }
    catch_up();
    if (saved_at_ != trainer_.clock().step) save();
    finish_writing();
    if (*ending != Ending::signal) closing_evaluation();
    return finish(*ending);
  }

  void failed(const std::string& why) noexcept {
    try {
      status("failed", why);
    } catch (const Error& e) {
      if (e.what() != why) log::error(e.what());
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
    if (ranks_.size() == 1 ? time_is_up() : agreed_.time) return Ending::max_time;
    return std::nullopt;
  }

  bool time_is_up() const {
    return config_.train.max_seconds > 0 && pace_.seconds() >= config_.train.max_seconds;
  }

  void write(std::string_view name, std::string_view text) const {
    if (ranks_.is_first()) folder_.write(name, text);
  }

  // Waits for the step that is still being computed: its record comes before what follows it.
  void catch_up() {
    if (const std::optional<StepRecord> record = trainer_.flush()) report(*record);
  }

  void report(const StepRecord& record) {
    agreed_.signal = agreed_.signal || record.stop_signal;
    agreed_.time = agreed_.time || record.stop_time;
    const bool logs = record.step == 1 || due(record.step, config_.log.interval);
    if (log_ && logs) {
      log_->step(record, pace_.record());
    } else if (logs || record.step == record.max_steps) {
      // The last step for people only: a longer run has no such line.
      log::line(step_line(record, pace_.record()));
    }
    if (log_) log_->measures(record);
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
    if (log_) {
      log_->evaluation(evaluated_at_, "validation", result.report);
      log_->event(evaluated_at_, "evaluation", event.seconds(), trainer_.memory().total());
    }
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
    ranks_.session->at("checkpoint", step);
    if (ranks_.is_first()) folder_.require_there();
    RunState state = trainer_.state();
    state.best = early_stop_.best();
    state.seconds = pace_.seconds();
    if (log_) {
      log_->sync();
      state.metrics = log_->metrics();
      state.perf = log_->perf();
    }
    state.arithmetic = trainer_.arithmetic();
    state.version = kVersion;
    state.config_yaml = config_.resolved.yaml();
    const TokenizerCopy* tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
    writer_.save(folder_.checkpoint(step), state, checkpoint_config(config_, tokenizer),
                 tokenizer != nullptr ? std::span<const data::TokenizerFile>(tokenizer->files)
                                      : std::span<const data::TokenizerFile>(),
                 [this, step, best = early_stop_.best()] { committed(step, best); });
    saved_at_ = step;
    if (log_) log_->event(step, "checkpoint", writer_.times().stall, trainer_.memory().total());
    is_writing_ = true;
    note_written();
    status("running");
  }

  // The checkpoint has its name. By the thread that wrote it.
  void committed(std::int64_t step, const BestSoFar& best) {
    folder_.set_latest(step);
    folder_.prune(config_.ckpt.keep_last, config_.ckpt.keep_every,
                  config_.ckpt.keep_best && best.any ? best.step : -1);
    committed_at_ = step;
  }

  // Errors of the writing come out here.
  void note_written() {
    if (!is_writing_ || !writer_.poll()) return;
    is_writing_ = false;
    if (log_)
      log_->event(saved_at_, "checkpoint_written", writer_.times().written,
                  trainer_.memory().total());
  }

  // All ranks' parts are on the disk and the newest checkpoint has its name.
  void finish_writing() {
    ranks_.session->at("checkpoint", saved_at_);
    writer_.wait();
    note_written();
    ranks_.session->barrier();
  }

  TrainResult finish(Ending ending) {
    if (log_) log_->sync();
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
    out.checkpoint_step = committed_at_;
    out.tokens = trainer_.feed().tokens();
    out.seconds = pace_.seconds();
    out.parameters = trainer_.store().parameters();
    out.message = message;
    out.best = early_stop_.best();
    out.metrics = metrics_;
    write(kStatusName, status_json(out));
  }

  void write_header(const Start& start) {
    const Device device = trainer_.stream().device();
    const Arithmetic& now = trainer_.arithmetic();
    const int threads = trainer_.stream().threads();
    const std::string where = device.is_cuda()
                                  ? cat(now.isa, ", ", now.blas_core)
                                  : cat(now.isa, ", BLAS core ", now.blas_core, ", ", threads,
                                        threads == 1 ? " thread" : " threads");
    log::info(cat("fovea ", kVersion, ", ", name_of(device), ": ", where, ", ", now.precision));
    if (ranks_.size() > 1) log::info(ranks_text(ranks_, config_));
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
  const Ranks& ranks_;
  StopWish agreed_;  // what some rank wished before a step that all have made
  Trainer trainer_;
  Pace pace_;
  EarlyStop early_stop_;
  std::optional<RunLog> log_;  // of rank 0
  std::optional<TokenizerCopy> tokenizer_;
  Report metrics_;
  bool evaluates_ = false;
  std::int64_t saved_at_ = -1, evaluated_at_ = -1;
  std::atomic<std::int64_t> committed_at_ = -1;  // set by the writing thread
  bool is_writing_ = false;
  CheckpointWriter writer_;  // last: its thread uses what stands above
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

TrainResult train_as(const Ranks& ranks, const RunConfig& config, const TrainOptions& options,
                     const RunFolder& folder, const StopSignal& signal, Device device) {
  const auto [start, done] = agree_on_start(config, folder, ranks);
  if (done) {
    log::info(cat(folder.path(), ": the run is finished (", done->step, " steps): nothing to do"));
    return *done;
  }
  const std::string before = start.checkpoint ? start.checkpoint->state().config_yaml : "";
  RunConfig whole =
      for_ranks(with_fitting_micro_batch(config, ranks, device, before), ranks.size(), before);
  // Found once: a checkpoint must not read the data for it each time.
  if (whole.model.vocab_size == 0) whole.model.vocab_size = data::vocab_size(whole.data);
  Run run(whole, options, folder, start, ranks, device);
  try {
    return run.run(signal);
  } catch (const Error& e) {
    ranks.session->fail(e.code(), e.what());
    run.failed(e.what());
    throw;
  }
}

TrainResult train_with(const Ranks& ranks, const RunConfig& config, const TrainOptions& options,
                       const RunFolder& folder, const StopSignal& signal, Device device) {
  try {
    TrainResult out = train_as(ranks, config, options, folder, signal, device);
    ranks.session->leave();
    return out;
  } catch (const Error& e) {
    ranks.session->fail(e.code(), e.what());
    throw;
  }
}

}  // namespace

TrainResult train(const RunConfig& config, const TrainOptions& options) {
  const dist::World world = dist::world_from_environment();
  const bool first = world.rank == 0;
  const StopSignal signal;
  const auto stop = [&] { return signal.requested(); };
  Device device;
  std::optional<RunFolder> folder;
  try {
    device = device_of(config.train, world.local_rank);
    folder.emplace(config.out_dir, first);
    if (!first) log::console(false);
    log::to_file(folder->log_of(world.rank));
  } catch (const Error& e) {
    decline_ranks(world, config.out_dir, "fovea train", e, stop);
    throw;
  }
  const auto on_lost = [&](ExitCode code, const std::string& message) {
    end_because(*folder, first, code, message);
  };
  try {
    const Ranks ranks = join_ranks(world, device, config, "fovea train", on_lost, stop);
    return train_with(ranks, config, options, *folder, signal, device);
  } catch (const Error& e) {
    log::note(cat("error: ", e.what()));  // for the log file: the console has it from main
    folder->clear_up();
    throw;
  }
}

}  // namespace fovea::train
