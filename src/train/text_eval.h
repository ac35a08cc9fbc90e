#pragma once
// A language model's score in every convention, with all that one has to know to compare it.
// Source: data.md 3.1 and 3.2.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/eval_source.h"
#include "train/evaluator.h"
#include "train/run_config.h"

namespace fovea::train {

// A number of units that a metric divides by, or why there is none.
struct Divisor {
  std::optional<std::int64_t> count;
  std::string what;  // how it was counted, or why it was not
};

struct DocumentScore {
  std::int64_t document = 0;  // in the split, from 0
  std::string name;           // of its file where each is a document and none JSON lines, else ""
  double nats = 0;
  std::int64_t targets = 0;
  // Where known, and all of it was scored: EvalSource::document_counts(), words by white space.
  std::optional<std::int64_t> bytes, words;
};

struct RandomEstimate {  // data/random_windows.h
  std::int64_t batches = 0, targets = 0;
  double loss = 0;  // nats a target
};

struct TextEvaluation {
  double nats = 0;           // L
  std::int64_t targets = 0;  // T
  Divisor words, characters, bytes;
  std::string word_convention;

  std::int64_t context = 0, stride = 0, windows = 0, all_windows = 0, streams = 0;
  std::optional<std::int32_t> prefix;
  std::optional<std::int32_t> begin_of_text;  // that the data has before every document by itself
  bool by_document = false;
  std::int64_t unscored = 0;  // tokens that are no target because nothing stands before them

  // Fingerprint "": the data does not tell; kind "": its fingerprint is all that is known.
  std::string tokenizer, tokenizer_fingerprint;
  std::int64_t vocabulary = 0;

  std::string split;  // "all": texts without named splits, whole
  std::vector<std::string> paths, files, layouts;
  double fraction = 1;
  data::Removed removed;
  std::int64_t documents = 0;

  std::optional<RandomEstimate> random;
  std::vector<DocumentScore> per_document;

  double token_perplexity() const;
  std::optional<double> word_perplexity() const;
  std::optional<double> bits_per_character() const;
  std::optional<double> bits_per_byte() const;
};

// Of an evaluation of this source's first `result.examples` windows. random and per_document are
// left empty.
TextEvaluation text_evaluation(const Evaluation& result, const data::EvalSource& source,
                               const EvalConfig& config);

// Sums by document, in order. `losses` as Evaluator::run() collects them.
std::vector<DocumentScore> document_scores(const data::EvalSource& source, std::int64_t windows,
                                           const std::vector<double>& losses);

// The loss of eval.random_batches.
RandomEstimate random_estimate(Task& task, const data::EvalSource& source, const Ctx& ctx,
                               std::int64_t batches, std::int64_t micro_batch);

// A safetensors file with an entry of each scored target, in order: losses (nats, f32; f64 where
// the run computes in it), targets, document (in the split), position (of the target in its
// document; in the file where documents are not known), all i32. The losses, added in order in f64,
// give L to the bit. Throws IoError.
void write_losses(ReplacedFile& file, const data::EvalSource& source, std::int64_t windows,
                  const std::vector<double>& losses, DType dtype);

// One screen for people; one JSON object with stable keys (docs/evaluation.md).
std::string text_evaluation_table(const TextEvaluation& e);
std::string text_evaluation_json(const TextEvaluation& e);

}  // namespace fovea::train
