#pragma once
// A split as evaluation needs it: its tokens, what text they stand for, and where it came from.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/text_counts.h"
#include "data/text_reader.h"
#include "data/token_encoder.h"
#include "data/token_split.h"

namespace fovea::data {

// One corpus: data.path, or a part of data.mix.
struct EvalPart {
  TokenSplit split;
  std::string layout;              // of the texts (text_layout.h); "token files" for raw ones
  std::vector<std::string> files;  // names relative to the path
  double fraction = 1;             // the share of every document that was held out; 1: all of it
  Removed removed;
  std::vector<TextCounts> documents;  // of texts that were read now: of each document
  // Of texts that were read now: spaces between the first and the last byte that is no white space.
  std::optional<std::int64_t> inner_spaces;
};

struct EvalText {
  Split split = Split::train;
  std::vector<EvalPart> parts;
  std::shared_ptr<const Tokenizer> tokenizer;  // null if the data does not tell
  DocumentMarks marks;                         // that the tokens have

  // Their sum over the parts; nothing unless all parts have counts.
  std::optional<TextCounts> counts() const;
};

// Reads what open_split() reads, with the same tokens. Throws as it does, and ConfigError for the
// parts of a mix that have different tokenizers.
EvalText open_eval_text(const DataConfig& config, Split split);

// Whether `path` holds tokens rather than a text: prepared data, or .bin files.
bool holds_tokens(const std::string& path);

}  // namespace fovea::data
