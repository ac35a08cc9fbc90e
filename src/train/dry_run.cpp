#include "train/dry_run.h"

#include "core/error.h"
#include "core/text.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

// Whether an evaluation belongs to the run: text may come without held-out data.
bool has_held_out(Trainer& trainer) {
  try {
    trainer.task().held_out(Split::validation);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace

DryRun dry_run(const RunConfig& config) {
  Trainer trainer(config, kMeta);
  DryRun out;
  trainer.step();
  const double before = trainer.stream().cost().flops;
  trainer.step();
  out.step_flops = trainer.stream().cost().flops - before;
  if (config.eval.interval > 0 || has_held_out(trainer)) {
    trainer.evaluate(Split::validation, 1);
    trainer
        .step();  // an evaluation may leave holes in the activations that a step does not fit into
  }
  out.memory = trainer.memory();
  out.parameters = trainer.store().parameters();
  out.micro_batches = trainer.feed().global_micro_batches();
  out.gradient_buffers = trainer.gradient_buffers();
  out.useful_flops = trainer.task().step_flops(false);
  out.executed_flops = trainer.task().step_flops(true);
  out.planned_steps = config.planned_steps();
  out.tokens_per_step = config.tokens_per_step();
  out.by_tag = trainer.memory_report();
  return out;
}

std::string dry_run_text(const DryRun& r) {
  const auto bytes = [](std::size_t n) { return human_bytes(static_cast<double>(n)); };
  return cat("parameters        ", human_count(static_cast<double>(r.parameters)), "\n",
             "steps             ",
             r.planned_steps == 0 ? std::string("as many as fit into train.max_time")
                                  : cat(r.planned_steps),
             ", ", human_count(static_cast<double>(r.tokens_per_step)), " tokens each in ",
             r.micro_batches, " micro-batches\n", "peak memory       ", bytes(r.memory.total()),
             ": ", bytes(r.memory.persistent), " persistent (", r.gradient_buffers,
             " gradient buffers), ", bytes(r.memory.reserved), " activations\n",
             "FLOPs of a step   ", human_count(r.useful_flops), " useful, ",
             human_count(r.step_flops), " counted\n", r.by_tag);
}

std::string dry_run_json(const DryRun& r) {
  return JsonObject()
      .add("peak_bytes", r.memory.total())
      .add("persistent_bytes", r.memory.persistent)
      .add("activation_bytes", r.memory.activations)
      .add("activation_reserved_bytes", r.memory.reserved)
      .add("parameters", r.parameters)
      .add("planned_steps", r.planned_steps)
      .add("tokens_per_step", r.tokens_per_step)
      .add("micro_batches", r.micro_batches)
      .add("gradient_buffers", r.gradient_buffers)
      .add("useful_flops", r.useful_flops)
      .add("executed_flops", r.executed_flops)
      .add("counted_flops", r.step_flops)
      .str();
}

}  // namespace fovea::train
