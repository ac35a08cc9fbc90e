#pragma once
// data.kind tokens: finding prepared splits and token files; private to data.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/example.h"
#include "data/token_split.h"

namespace fovea::data {

// data.path, or the paths of data.mix.
std::vector<std::string> corpus_paths(const DataConfig& config);

// The folder of a prepared split: `path` itself, or the split's folder in it; "" if `path` holds
// nothing prepared. Throws IoError if it does, but not this split.
std::string find_shard(const std::string& path, Split split);
// The splits that `fovea data prepare` made in this folder (itself, if it is a split's folder).
std::vector<std::string> shards_in(const std::string& path);
// The tokenizer that prepared data has with it; null if `path` holds token files. Throws IoError.
std::unique_ptr<Tokenizer> open_shard_tokenizer(const std::string& path);

TokenSplit open_token_files(const DataConfig& config, const std::string& path, Split split);
std::int64_t token_files_vocab(const DataConfig& config, const std::string& path);

}  // namespace fovea::data
