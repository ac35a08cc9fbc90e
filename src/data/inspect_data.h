#pragma once
// Looking into prepared data, token files and texts: what the verb `data inspect` calls.

#include <string>
#include <vector>

#include "data/shard_manifest.h"

namespace fovea::data {

struct DataSample {
  std::int64_t first = 0;  // token
  std::vector<std::int32_t> ids;
  std::string text;  // decoded; "" without a tokenizer
};
struct DataSplitReport {
  std::string name, path, format;  // "train", ..., "shard" | "llm.c" | "headerless" | "text"
  std::int64_t tokens = -1;        // -1: not tokenised
  std::int64_t vocab = 0;          // 0: not known
  bool has_counts = false;
  TextCounts counts;
  Removed removed;
  std::string tokenizer, fingerprint, layout;
  std::vector<DataSample> samples;
};

// `path`: a folder of prepared data or one of its splits, a folder of token files, a .bin file, or
// texts (text_layout.h, read whole for their counts). Every block of prepared data is checked.
// `samples` pieces of at most 64 tokens each, evenly spread. Throws IoError.
std::vector<DataSplitReport> inspect_data(const std::string& path, int samples);
// For people, lines; everything that comes from a file is quoted.
std::string text_of(const std::vector<DataSplitReport>& reports);

}  // namespace fovea::data
