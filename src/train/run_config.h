#pragma once
// Everything a run is told, as typed values: the YAML is read here once and never looked up again.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"
#include "config/option.h"
#include "core/precision.h"
#include "data/config.h"
#include "data/eval_protocol.h"
#include "data/example.h"
#include "models/config.h"
#include "optim/config.h"

namespace fovea::train {

enum class OnNonfinite { stop, skip };
// The order in which the micro-batches of a step are computed; none changes a bit of the result.
enum class MicroOrder { forward, reverse, shuffle };
enum class DeviceChoice { automatic, cpu, cuda };
enum class AsyncSave { automatic, always, never };

struct TrainConfig {
  std::int64_t global_batch_size = 32;  // sequences a step
  std::int64_t micro_batch_size = 32;   // sequences computed at once; divides the global batch
  bool micro_batch_given = true;        // else it stands for what a rank has of the global batch
  bool micro_batch_auto = false;        // or, once a device is known, for the most that fits
  std::int64_t max_steps = 0;           // 0: no limit
  std::int64_t max_tokens = 0;          // input tokens; 0: no limit
  double max_seconds = 0;               // train.max_time; 0: no limit
  Precision precision = Precision::fp32;
  double max_norm = 1;  // 0: no clipping
  bool recompute = false;
  std::string resume = "auto";  // auto, never, or a checkpoint's path
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  MicroOrder micro_order = MicroOrder::forward;
  int threads = 0;  // 0: all cores
  DeviceChoice device = DeviceChoice::automatic;
  bool graphs = true;               // train.cuda_graphs
  std::string gemm_table;           // of tuned products (tuning_table.h), or empty
  std::string init_from;            // weights to start from (import/imported_model.h), or empty
  std::vector<std::string> freeze;  // globs of parameters that stay as they are
};

// What counts as a word (data.md 3.1). Automatic: wikitext for WikiText's files and word
// tokenizers, else whitespace.
enum class WordConvention { automatic, wikitext, wikitext_1, whitespace };

struct EvalConfig {
  std::int64_t interval = 0;     // steps; 0: at the end only
  std::int64_t max_batches = 0;  // 0: all
  int patience = 0;              // evaluations without improvement before stopping; 0: never
  std::int64_t micro_batch_size = 8;
  data::EvalProtocol protocol;      // of texts and tokens; the context is filled in
  std::int64_t random_batches = 0;  // fovea eval only, as are the following
  WordConvention word_convention = WordConvention::automatic;
  std::int64_t words = 0;  // 0: counted
  data::Split split = data::Split::validation;
};

struct CkptConfig {
  std::int64_t interval = 0;    // steps; 0: at the end only
  std::int64_t keep_last = 2;   // the newest ones
  std::int64_t keep_every = 0;  // those at multiples of this many steps, for ever; 0: none
  bool keep_best = false;
  AsyncSave async = AsyncSave::automatic;
};

struct LogConfig {
  std::int64_t interval = 10;  // steps
};

enum class ReduceDType { fp32, bf16, fp16 };

struct DistributedConfig {
  bool reproducible = true;
  int zero = 0;          // stage: 0 or 1
  double bucket_mb = 0;  // MiB; 0: one bucket
  ReduceDType reduce_dtype = ReduceDType::fp32;
  std::int64_t check_interval = 0;          // steps; 0: never
  double timeout = 15, join_timeout = 120;  // seconds
};

// What the schema needs to know of an attention method.
struct AttentionKind {
  std::string name, alias;  // alias: a second name, or empty
  std::span<const config::Option> options;
};
// Those of the attention registry.
std::vector<AttentionKind> registered_attention();

struct RunConfig {
  std::string task = "lm";
  std::uint64_t seed = 0;
  std::string out_dir;
  models::ModelConfig
      model;              // attention: one entry a layer; vocab_size 0 still stands for the data's
  data::DataConfig data;  // seq_len is filled in
  TrainConfig train;
  optim::OptimConfig optim;
  optim::ScheduleConfig sched;
  EvalConfig eval;
  CkptConfig ckpt;
  LogConfig log;
  DistributedConfig distributed;
  bool fuse = true;                 // ops.fuse
  std::vector<std::string> unused;  // of a file: see unused_data_keys()
  config::Node resolved;  // every key with its value: from(resolved) is this configuration again

  // Checks keys, types, ranges and what must hold between them. Throws one ConfigError with a line
  // "file:line:column: what" for each finding.
  static RunConfig from(const config::Node& node,
                        std::span<const AttentionKind> attention = registered_attention());

  // The same of a checkpoint's text, which another machine may have written: what this one lacks is
  // no finding. See usable_here() of this_machine.h.
  static RunConfig of_checkpoint(const config::Node& node);

  std::int64_t tokens_per_step() const { return train.global_batch_size * data.seq_len; }
  // Steps until max_steps or max_tokens, whichever comes first; 0: only time ends the run.
  std::int64_t planned_steps() const;
  // 16 hexadecimal digits over all that the results depend on. Not: threads, recompute,
  // micro_order, resume, max_time, log, ckpt, out_dir, nor how a value was spelled or whether a
  // default was written.
  std::string result_hash() const;
  // The same without train.max_steps and train.max_tokens where nothing hangs on them: a run with
  // an equal hash may go on from this one's checkpoints.
  std::string resume_hash() const;
  // Whether the learning rate, or an attention method, follows from the length of the run.
  bool hangs_on_length() const;
};

// The same with another train.micro_batch_size, which counts as given.
RunConfig with_micro_batch(const RunConfig& config, std::int64_t sequences);

// The declared keys; the options of an attention kind come from its registry.
std::span<const config::Option> config_options();
// docs/config.md: the keys as a table.
std::string config_markdown();

}  // namespace fovea::train
