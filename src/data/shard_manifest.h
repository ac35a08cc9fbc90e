#pragma once
// What a prepared split is made of and how much is in it: manifest.json, written last.

#include <cstdint>
#include <string>
#include <vector>

#include "data/documents.h"
#include "data/text_counts.h"
#include "data/text_reader.h"

namespace fovea::data {

inline constexpr const char* kShardManifest = "manifest.json";

struct SourceFile {
  std::string name;                   // relative to the source
  std::uint64_t bytes = 0, xxh3 = 0;  // as stored, packed or not
  friend bool operator==(const SourceFile&, const SourceFile&) = default;
};

// What decides every byte of a split's tokens.bin and index.bin; where the sources lie does not.
struct ShardRecipe {
  Split split = Split::train;
  std::string layout;
  bool by_fraction = false;
  double val_fraction = 0;  // 0 unless by_fraction
  std::string text_field;
  std::string tokenizer, tokenizer_fingerprint;  // kind() and fingerprint()
  std::int64_t vocab = 0;
  std::vector<SourceFile> sources;
  friend bool operator==(const ShardRecipe&, const ShardRecipe&) = default;
};

struct ShardManifest {
  ShardRecipe recipe;
  std::string source;  // the path that was given
  std::int64_t tokens = 0;
  int token_bytes = 2;
  TextCounts counts;
  Removed removed;
  std::string fingerprint;              // of ids, documents and tokenizer: TokenHasher
  std::string blocks_xxh3, index_xxh3;  // of the files blocks.bin and index.bin

  std::string json() const;  // ends with its own hash
};

// Throws IoError if there is none, if it is of another schema, or altered.
ShardManifest read_shard_manifest(const std::string& folder);

}  // namespace fovea::data
