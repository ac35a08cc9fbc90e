#pragma once
// Token files of other programs, read as they are: llm.c's shards and nanoGPT's headerless .bin.

#include <cstdint>
#include <string>

#include "data/mapped_file.h"
#include "data/token_array.h"

namespace fovea::data {

// llm.c: 256 little-endian int32 (20240520, 1, tokens, ...) and uint16 ids of GPT-2, or (20240801,
// 7, tokens, ...) and uint32 ids of Llama 3. Anything else: ids from the first byte to the last.
class RawTokens final : public TokenArray {
 public:
  // `width` of headerless files, in bytes: 2 or 4. Throws IoError: empty, a length that is no
  // number of ids or not what the header says, another version of llm.c's format.
  RawTokens(const std::string& path, int width);
  std::int64_t size() const override { return tokens_; }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* to) const override;
  std::span<const std::uint64_t> offsets() const override { return {}; }

  const std::string& path() const { return file_.path(); }
  int width() const { return width_; }
  const char* format() const { return format_; }  // "llm.c" or "headerless"
  // Ids of the vocabulary that files of this format are made with; 0: it does not tell.
  std::int64_t usual_vocab() const;
  // A hash of the size and of up to 64 pieces of 64 KiB, spread evenly: files of many GB are not
  // read whole for it.
  std::uint64_t sampled_hash() const;

 private:
  MappedFile file_;
  int width_;
  std::uint64_t header_ = 0;
  std::int64_t tokens_ = 0;
  const char* format_ = "headerless";
};

}  // namespace fovea::data
