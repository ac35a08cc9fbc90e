#pragma once
// Where the examples come from; filled and range-checked by train/run_config.cpp.

#include <cstdint>
#include <string>

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

struct DataConfig {
  std::string kind = "text";  // one of source_kinds() in data/source.h: text | mqar | markov
  std::string path;           // text: a file, or a folder (see data/corpus.h)
  std::string tokenizer = "byte";
  int seq_len = 0;            // 0: model.block_size
  double val_fraction = 0.1;  // text without a validation folder: the held-out tail of every file
  MqarConfig mqar;
  MarkovConfig markov;
};

}  // namespace fovea::data
