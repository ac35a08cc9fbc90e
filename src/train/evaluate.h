#pragma once
// Evaluating a model on its own: what the verb `eval` calls.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "train/evaluator.h"
#include "train/text_eval.h"

namespace fovea::train {

struct EvaluateOptions {
  // A file for the loss of every target (write_losses), or "". Whether it can be written is found
  // out before anything is evaluated.
  std::string losses;
  bool per_document = false;  // fill TextEvaluation::per_document
};

struct EvaluateResult {
  std::string checkpoint;
  std::int64_t step = 0;
  std::string split;  // of texts as TextEvaluation::split
  std::int64_t examples = 0;
  Report metrics;
  std::optional<TextEvaluation> text;  // of language models of texts and tokens; on rank 0
  bool first = true;                   // of several ranks (dist/world.h): the one that speaks
};

// Evaluates a checkpoint folder, or the newest whole checkpoint of a run folder, on data.split,
// with the configuration it was trained with and these key=value overrides (eval.*, data.*,
// train.precision, ...). A model of another program (import/imported_model.h) is evaluated with
// these overrides and the tokenizer beside it, at step 0. Other data (data.path) is encoded with
// the model's own tokenizer, may be text or tokens, and is scored whole if it has no named splits
// and neither data.val_fraction nor data.split is given.
// With several ranks each scores its share; all get the same result.
// Throws ConfigError, CheckpointError, CommunicationError, IoError (also for data of another
// tokenizer than the model's own).
EvaluateResult evaluate(const std::string& run_or_checkpoint,
                        std::span<const std::string> overrides = {},
                        const EvaluateOptions& options = {});

}  // namespace fovea::train
