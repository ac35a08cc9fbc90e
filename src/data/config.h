#pragma once
// Where the examples come from; filled and range-checked by train/run_config.cpp.

#include <cstdint>
#include <string>

namespace fovea::data {

struct MqarConfig {           // data.md 6.2
  int vocab = 8192, pairs = 8;
  std::int64_t train_examples = 100000, test_examples = 3000;
  double power = 0.01;        // a: slots are drawn with weight a x^(a-1)
  bool random_non_queries = false;
};

struct DataConfig {
  std::string kind = "text";  // text | mqar | markov
  std::string path;           // text: a file or a folder (every regular file below it, in bytewise order)
  std::string tokenizer = "byte";
  int seq_len = 0;            // 0: model.block_size
  double val_fraction = 0.1;  // text: the held-out tail of every file... of the corpus, by bytes
  MqarConfig mqar;
};

}  // namespace fovea::data
