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

struct ListOpsConfig {  // generated where there is no data.path; data.md 5.2
  std::int64_t train_examples = 96000, validation_examples = 2000, test_examples = 2000;
  int min_length = 500, max_length = 2000;  // tokens of an example lie between, neither included
  int max_depth = 10, max_args = 10;        // of the tree, its root at depth 1; of a node
};

enum class NiahLayout {
  elsaa,   // elsaa.md 6.2: several needles of two tokens, one of them asked for
  marked,  // data.md 6.1: one needle and decoys of three tokens each, which a marker begins
};
enum class NiahGenerator {
  corrected,
  reference,  // with the three defects of the published generator, for comparison: elsaa.md 6.2
};

struct NiahConfig {  // needle in a haystack: a value to be recalled by its key
  NiahLayout layout = NiahLayout::elsaa;
  NiahGenerator generator = NiahGenerator::corrected;  // elsaa
  int needles = 1;                                     // elsaa
  int decoys = 0;                                      // marked
  std::int64_t train_examples = 200000, validation_examples = 2000;
  std::int64_t test_examples = 500;  // of each length, and each depth of elsaa
  std::vector<int> test_lengths;     // empty: data.seq_len
  std::vector<double> depths = {0.1, 0.25, 0.5, 0.75, 0.9};  // elsaa: of the test's needles
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
  std::string path;                 // text_layout.h, token_split.h, listops_files.h
  std::vector<MixPart> mix;         // instead of path: several corpora of that kind
  std::string tokenizer = "byte";   // text: token_split.h; tokens: byte stands for the data's own
  std::string text_field = "text";  // text: of JSON lines
  Pack pack = Pack::plain;          // text, tokens
  int seq_len = 0;                  // 0: model.block_size
  double val_fraction = 0.1;    // held out of every document, or of a file of examples, where no
                                // split is named
  int token_bytes = 2;          // tokens: of headerless files; 2 or 4
  std::int64_t vocab_size = 0;  // tokens: of files that do not tell; 0: their format's usual one
  MqarConfig mqar;
  MarkovConfig markov;
  ListOpsConfig listops;
  NiahConfig niah;
  // Every example begins with a CLS token, whose id comes behind the data's own: set where an
  // encoder reads it (model.pool).
  bool cls = false;
};

}  // namespace fovea::data
