#pragma once
// A prepared split: a folder of
//   tokens.bin     the ids, little endian, uint16 if the vocabulary has at most 65,536 ids, else
//                  uint32; nothing else (what nanoGPT reads)
//   index.bin      uint64 offsets of the documents in tokens, n + 1 of them
//   blocks.bin     one uint64 XXH3 for each MiB of tokens.bin
//   manifest.json  shard_manifest.h

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "data/hash.h"
#include "data/mapped_file.h"
#include "data/shard_manifest.h"
#include "data/token_array.h"

namespace fovea::data {

// A hash of ids and documents, whatever they are kept in.
class TokenHasher final : public TokenSink {
 public:
  void tokens(std::span<const std::int32_t> ids) override;
  void end_document() override;
  std::string fingerprint(std::string_view tokenizer_fingerprint) const;

 private:
  Xxh3 ids_, ends_;
  std::uint64_t count_ = 0;
};

// Writes a split's files in order, without keeping more than a MiB. Unless finish() returned, the
// folder is no split: its manifest is missing.
class ShardWriter final : public TokenSink {
 public:
  // The folder exists and is empty. Throws IoError.
  ShardWriter(const std::string& folder, std::int64_t vocab);
  void tokens(std::span<const std::int32_t> ids) override;
  void end_document() override;
  std::int64_t size() const { return static_cast<std::int64_t>(count_); }
  // Completes `manifest` (what only the writer knows) and writes it behind all else; everything is
  // on the disk then.
  void finish(ShardManifest& manifest);

 private:
  void flush();

  std::string folder_;
  int width_;
  OutputFile tokens_, index_;
  std::string buffer_, ends_;  // not yet written
  std::vector<std::uint64_t> blocks_;
  Xxh3 index_hash_;
  TokenHasher hasher_;
  std::uint64_t count_ = 0;
};

// A split's tokens, mapped into memory. A MiB is checked when its first token is read.
class ShardTokens final : public TokenArray {
 public:
  // Throws IoError: a file that is missing, of another size than the manifest says, or (index and
  // block hashes, read at once) altered.
  explicit ShardTokens(const std::string& folder);
  const ShardManifest& manifest() const { return manifest_; }
  std::int64_t size() const override { return manifest_.tokens; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* to) const override;
  std::span<const std::uint64_t> offsets() const override;

 private:
  void check(std::uint64_t block) const;

  ShardManifest manifest_;
  MappedFile tokens_, index_;
  std::vector<std::uint64_t> blocks_;
  mutable std::vector<std::atomic<bool>> checked_;
};

}  // namespace fovea::data
