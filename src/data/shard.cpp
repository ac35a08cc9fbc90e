#include "data/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

namespace {

static_assert(std::endian::native == std::endian::little, "shards are copied as they are");

constexpr std::size_t kBlock = std::size_t{1} << 20;

std::string file_of(const std::string& folder, const char* name) {
  return cat(folder, "/", name);
}

void append(std::string& to, const void* from, std::size_t bytes) {
  to.append(static_cast<const char*>(from), bytes);
}

}  // namespace

void TokenHasher::tokens(std::span<const std::int32_t> ids) {
  ids_.update(ids.data(), ids.size_bytes());
  count_ += ids.size();
}

void TokenHasher::end_document() {
  ends_.update(&count_, sizeof count_);
}

std::string TokenHasher::fingerprint(std::string_view tokenizer_fingerprint) const {
  return hash_hex(xxh3_64(cat(ids_.hex(), ends_.hex(), tokenizer_fingerprint)));
}

ShardWriter::ShardWriter(const std::string& folder, std::int64_t vocab)
    : folder_(folder),
      width_(token_bytes(vocab)),
      tokens_(file_of(folder, "tokens.bin")),
      index_(file_of(folder, "index.bin")) {
  buffer_.reserve(kBlock);
  append(ends_, &count_, sizeof count_);
}

void ShardWriter::tokens(std::span<const std::int32_t> ids) {
  hasher_.tokens(ids);
  count_ += ids.size();
  for (const std::int32_t id : ids) {
    append(buffer_, &id, static_cast<std::size_t>(width_));  // the low bytes come first
    if (buffer_.size() == kBlock) flush();
  }
}

void ShardWriter::end_document() {
  hasher_.end_document();
  append(ends_, &count_, sizeof count_);
  if (ends_.size() >= kBlock) {
    index_.write(ends_);
    index_hash_.update(ends_);
    ends_.clear();
  }
}

void ShardWriter::flush() {
  if (buffer_.empty()) return;
  blocks_.push_back(xxh3_64(buffer_));
  tokens_.write(buffer_);
  buffer_.clear();
}

void ShardWriter::finish(ShardManifest& manifest) {
  flush();
  tokens_.finish();
  index_.write(ends_);
  index_hash_.update(ends_);
  index_.finish();
  std::string blocks;
  append(blocks, blocks_.data(), blocks_.size() * sizeof blocks_[0]);
  write_file_synced(file_of(folder_, "blocks.bin"), blocks);
  manifest.tokens = size();
  manifest.token_bytes = width_;
  manifest.fingerprint = hasher_.fingerprint(manifest.recipe.tokenizer_fingerprint);
  manifest.blocks_xxh3 = hash_hex(xxh3_64(blocks));
  manifest.index_xxh3 = index_hash_.hex();
  sync_folder(folder_);
  const std::string path = file_of(folder_, kShardManifest), unfinished = path + ".writing";
  write_file_synced(unfinished, manifest.json());
  rename_over(unfinished, path);
}

ShardTokens::ShardTokens(const std::string& folder)
    : manifest_(read_shard_manifest(folder)),
      tokens_(file_of(folder, "tokens.bin")),
      index_(file_of(folder, "index.bin")),
      checked_((tokens_.size() + kBlock - 1) / kBlock) {
  const auto expect = [](const std::string& path, std::uint64_t has, std::uint64_t needs) {
    if (has == needs) return;
    throw IoError(cat(path, ": has ", has, " bytes, but the manifest says ", needs,
                      "; prepare the data again"));
  };
  const auto width = static_cast<std::uint64_t>(manifest_.token_bytes);
  expect(tokens_.path(), tokens_.size(), static_cast<std::uint64_t>(manifest_.tokens) * width);
  expect(index_.path(), index_.size(),
         (static_cast<std::uint64_t>(manifest_.counts.documents) + 1) * sizeof(std::uint64_t));
  const std::string path = file_of(folder, "blocks.bin"), blocks = read_file(path);
  expect(path, blocks.size(), checked_.size() * sizeof(std::uint64_t));
  for (const auto& [name, has, needs] :
       {std::tuple(path, xxh3_64(blocks), manifest_.blocks_xxh3),
        std::tuple(index_.path(), xxh3_64(index_.data(), index_.size()), manifest_.index_xxh3)}) {
    if (hash_hex(has) != needs)
      throw IoError(cat(name, ": is damaged: it has xxh3 ", hash_hex(has),
                        ", but the manifest says ", needs, "; prepare the data again"));
  }
  blocks_.resize(checked_.size());
  std::memcpy(blocks_.data(), blocks.data(), blocks.size());
  const auto offsets = this->offsets();
  if (offsets.front() != 0 || offsets.back() != static_cast<std::uint64_t>(manifest_.tokens) ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    throw IoError(cat(index_.path(), ": is no index of ", manifest_.tokens, " tokens"));
  }
}

std::span<const std::uint64_t> ShardTokens::offsets() const {
  // Mapped at the beginning of a page, so aligned.
  return {reinterpret_cast<const std::uint64_t*>(index_.data()),
          static_cast<std::size_t>(manifest_.counts.documents) + 1};
}

void ShardTokens::check(std::uint64_t block) const {
  if (checked_[block].load(std::memory_order_relaxed)) return;
  const std::uint64_t begin = block * kBlock;
  const std::uint64_t bytes = std::min<std::uint64_t>(kBlock, tokens_.size() - begin);
  if (xxh3_64(tokens_.data() + begin, bytes) != blocks_[block]) {
    throw IoError(cat(tokens_.path(), ": is damaged between bytes ", begin, " and ", begin + bytes,
                      ": their xxh3 is not that of blocks.bin; prepare the data again"));
  }
  checked_[block].store(true, std::memory_order_relaxed);
}

void ShardTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* to) const {
  FOVEA_ASSERT(begin >= 0 && count >= 0 && count <= size() - begin);
  if (count == 0) return;
  const auto width = static_cast<std::uint64_t>(manifest_.token_bytes);
  const std::uint64_t first = static_cast<std::uint64_t>(begin) * width;
  const std::uint64_t last = static_cast<std::uint64_t>(begin + count) * width - 1;
  for (std::uint64_t block = first / kBlock; block <= last / kBlock; ++block)
    check(block);
  const unsigned char* from = tokens_.data() + first;
  if (width == 4) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = from[2 * i] | from[2 * i + 1] << 8;
}

}  // namespace fovea::data
