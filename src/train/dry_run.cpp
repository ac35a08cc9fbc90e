#include "train/dry_run.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/text.h"
#include "train/json_text.h"
#include "train/ranks.h"

namespace fovea::train {

namespace {

// Meta, standing for what the run would compute on.
Device imagined_device(const TrainConfig& config) {
  const bool gpu = config.device == DeviceChoice::cuda ||
                   (config.device == DeviceChoice::automatic && why_not_cuda(config).empty());
  return gpu ? kMetaCuda : kMeta;
}

// Whether an evaluation belongs to the run: text may come without held-out data.
bool has_held_out(Trainer& trainer) {
  try {
    trainer.task().held_out(Split::validation);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

// By the tags of what lasts; the rest of it is "other".
std::vector<MemoryKind> kinds_of(const MemoryUse& memory) {
  struct Tag {
    std::string_view tag, kind;
  };
  static constexpr std::array kTags = std::to_array<Tag>({{"masters", "masters"},
                                                          {"computes", "compute_copies"},
                                                          {"gradients", "gradients"},
                                                          {"first_moment", "moments"},
                                                          {"second_moment", "moments"},
                                                          {"reduction", "reduction"}});
  std::vector<MemoryKind> out;
  std::size_t named = 0;
  const MemoryStats stats = persistent_allocator(kMeta).stats();
  for (const auto& [tag, kind] : kTags) {
    if (out.empty() || out.back().name != kind) out.push_back({kind, 0});
    for (const TagBytes& entry : stats.by_tag) {
      if (entry.tag != tag) continue;
      out.back().bytes += entry.at_peak;
      named += entry.at_peak;
    }
  }
  out.push_back({"other", memory.persistent - std::min(memory.persistent, named)});
  out.push_back({"activations", memory.reserved});
  return out;
}

std::string bytes_text(std::size_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

std::string kinds_text(const std::vector<MemoryKind>& kinds) {
  std::string out;
  for (const MemoryKind& kind : kinds) {
    if (kind.bytes == 0) continue;
    std::string name(kind.name);
    for (char& c : name)
      c = c == '_' ? ' ' : c;
    out += cat(out.empty() ? "" : ", ", bytes_text(kind.bytes), " ", name);
  }
  return out;
}

}  // namespace

DryRun dry_run(const RunConfig& config, int ranks) {
  const Device device = imagined_device(config.train);
  const RunConfig whole = for_ranks(config, ranks);
  Trainer trainer(whole, device, nullptr, imagined(ranks));
  DryRun out;
  trainer.step();
  const double before = trainer.stream().cost().flops;
  trainer.step();
  out.step_flops = trainer.stream().cost().flops - before;
  if (whole.eval.interval > 0 || has_held_out(trainer)) {
    for (const auto& [name, value] : trainer.evaluate(Split::validation, 1).report)
      out.metrics.push_back(name);
    out.reports_more = trainer.task().reports_by_results();
    trainer
        .step();  // an evaluation may leave holes in the activations that a step does not fit into
  }
  out.on_gpu = device == kMetaCuda;
  out.ranks = ranks;
  out.zero = whole.distributed.zero;
  out.memory = trainer.memory();
  out.kinds = kinds_of(out.memory);
  out.parameters = trainer.store().parameters();
  out.micro_batch_size = whole.train.micro_batch_size;
  out.micro_batches = trainer.feed().global_micro_batches();
  out.gradient_buffers = trainer.gradient_buffers();
  out.useful_flops = trainer.task().step_flops(false);
  out.executed_flops = trainer.task().step_flops(true);
  out.planned_steps = whole.planned_steps();
  out.tokens_per_step = whole.tokens_per_step();
  out.by_tag = trainer.memory_report();
  return out;
}

std::string dry_run_text(const DryRun& r) {
  return cat("parameters        ", human_count(static_cast<double>(r.parameters)), "\n",
             "steps             ",
             r.planned_steps == 0 ? std::string("as many as fit into train.max_time")
                                  : cat(r.planned_steps),
             ", ", human_count(static_cast<double>(r.tokens_per_step)), " tokens each in ",
             r.micro_batches, " micro-batches of ", r.micro_batch_size, "\n", "device            ",
             r.on_gpu ? "a GPU" : "the cpu",
             r.ranks == 1 ? std::string()
                          : cat(" for each of ", r.ranks, " processes, ZeRO stage ", r.zero),
             "\n", "peak memory       ", bytes_text(r.memory.total()), ": ",
             bytes_text(r.memory.persistent), " persistent (", r.gradient_buffers,
             " gradient buffers), ", bytes_text(r.memory.reserved), " activations\n",
             "of these          ", kinds_text(r.kinds), "\n", "FLOPs of a step   ",
             human_count(r.useful_flops), " useful, ", human_count(r.step_flops), " counted",
             r.ranks == 1 ? "" : " in a process", "\n", r.by_tag);
}

std::string dry_run_json(const DryRun& r) {
  JsonObject kinds;
  for (const MemoryKind& kind : r.kinds)
    kinds.add(kind.name, kind.bytes);
  return JsonObject()
      .add("peak_bytes", r.memory.total())
      .add("persistent_bytes", r.memory.persistent)
      .add("activation_bytes", r.memory.activations)
      .add("activation_reserved_bytes", r.memory.reserved)
      .raw("bytes_by_kind", kinds.str())
      .add("device", r.on_gpu ? "cuda" : "cpu")
      .add("ranks", r.ranks)
      .add("zero", r.zero)
      .add("parameters", r.parameters)
      .add("planned_steps", r.planned_steps)
      .add("tokens_per_step", r.tokens_per_step)
      .add("micro_batch_size", r.micro_batch_size)
      .add("micro_batches", r.micro_batches)
      .add("gradient_buffers", r.gradient_buffers)
      .add("useful_flops", r.useful_flops)
      .add("executed_flops", r.executed_flops)
      .add("counted_flops", r.step_flops)
      .str();
}

}  // namespace fovea::train
