#pragma once
// Turning texts into shards, once: what the verb `data prepare` calls.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/shard_manifest.h"

namespace fovea::data {

struct PrepareOptions {
  std::string source;              // text_layout.h
  std::string out;                 // a folder that does not exist or is empty
  std::string tokenizer = "byte";  // token_split.h: tokenizer_for
  std::string vocab_from;          // word, char: a text to make the vocabulary of, instead of train
  std::string text_field = "text";
  double val_fraction = 0.1;
  int jobs = 1;  // threads; no bit depends on it
  bool overwrite = false;
};

struct PrepareProgress {
  enum class Stage { hashing, encoding, split_done, renaming, done } stage;
  Split split = Split::train;
  std::int64_t bytes = 0;  // encoding: of clean text so far
};

struct PreparedSplit {
  std::string folder;
  ShardManifest manifest;
  bool kept = false;  // it was there from an earlier start
};
struct Prepared {
  std::string folder;
  std::vector<PreparedSplit> splits;
  bool nothing_to_do = false;  // all of it was there
};

// Writes OUT/<split>/ (shard.h) for every split that the source has, and OUT/tokenizer/ unless
// tokens are bytes. All of it is made in OUT.preparing and renamed at the end, so OUT is whole or
// not there. After a kill the same call goes on from the splits that OUT.preparing has whole and
// begins the others again; if OUT is whole and made of the same texts in the same way, nothing is
// done. The same documents give the same tokens.bin, index.bin and blocks.bin, whether they come as
// text files, packed, as JSON lines or in a folder; manifest.json says what they came in.
// Memory: some 10 MiB a job and the tokenizer's tables, plus 8 bytes a MiB of tokens.
// Throws ConfigError, IoError: OUT holds something else (or other data, without `overwrite`), the
// texts are unfit or none, another process is preparing OUT, the disk is full.
Prepared prepare(const PrepareOptions& options,
                 const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace fovea::data
