#pragma once
// How language models are evaluated: filled and range-checked by train/run_config.cpp.

#include <cstdint>

namespace fovea::data {

// `automatic` decides by the data.
enum class Tristate { automatic, yes, no };

struct EvalProtocol {
  std::int64_t context = 0, stride = 0;  // stride 0: context
  // An end-of-text token stands before each stream. Automatic: if the tokenizer has one, unless it
  // also puts a begin of text before documents, which does the same.
  Tristate prefix = Tristate::automatic;
  // Every document is a stream of its own. Automatic: for the layout of PG-19 ("split folders") and
  // for Pack::documents. No: all of a corpus is one stream.
  Tristate documents = Tristate::automatic;
};

}  // namespace fovea::data
