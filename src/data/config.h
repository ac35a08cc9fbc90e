#pragma once
// Where the examples come from; filled and range-checked by train/run_config.cpp.

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::data {

struct MqarConfig {  // data.md 6.2
  int vocab = 8192, pairs = 8;
  std::int64_t train_examples = 100000, test_examples = 3000;
  double power = 0.01;  // a: slots are drawn with weight a x^(a-1)
  bool random_non_queries = false;
};

struct MarkovConfig {  // generated text of known entropy, for smoke tests
  int vocab = 64;      // at least 4: every state has 4 successors
  std::int64_t train_examples = 65536, test_examples = 256;
};

struct MixPart {
  std::string path;
  double weight = 1;  // share of the training examples, relative to the other corpora
};

enum class Pack {
  plain,      // windows know nothing of documents
  documents,  // tokens see their own document only: segments, positions and targets stop at its
              // ends
};

struct DataConfig {
  std::string kind = "text";        // one of source_kinds() in data/source.h
  std::string path;                 // text: text_layout.h; tokens: token_split.h
  std::vector<MixPart> mix;         // instead of path: several corpora of that kind
  std::string tokenizer = "byte";   // text: token_split.h; tokens: byte stands for the data's own
  std::string text_field = "text";  // text: of JSON lines
  Pack pack = Pack::plain;          // text, tokens
  int seq_len = 0;                  // 0: model.block_size
  double val_fraction = 0.1;        // held out of every document where no split is named
  int token_bytes = 2;              // tokens: of headerless files; 2 or 4
  std::int64_t vocab_size = 0;  // tokens: of files that do not tell; 0: their format's usual one
  MqarConfig mqar;
  MarkovConfig markov;
};

}  // namespace fovea::data
