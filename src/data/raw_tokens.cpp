#include "data/raw_tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

static_assert(std::endian::native == std::endian::little, "ids are copied as they are");

constexpr std::uint64_t kHeader = 256 * sizeof(std::int32_t);

struct Llmc {
  std::int32_t magic, version;
  int width;
};
constexpr Llmc kLlmc[] = {{20240520, 1, 2}, {20240801, 7, 4}};

}  // namespace

RawTokens::RawTokens(const std::string& path, int width) : file_(path), width_(width) {
  if (file_.size() == 0) throw IoError(cat(path, ": is empty, but must hold token ids"));
  std::int32_t head[3] = {};
  if (file_.size() >= sizeof head) std::memcpy(head, file_.data(), sizeof head);
  for (const Llmc& known : kLlmc) {
    if (head[0] != known.magic || file_.size() < kHeader) continue;
    if (head[1] != known.version) {
      throw IoError(cat(path, ": is an llm.c file of version ", head[1], ", but version ",
                        known.version, " is needed"));
    }
    const std::uint64_t needed = kHeader + static_cast<std::uint64_t>(std::max(head[2], 0)) *
                                               static_cast<std::uint64_t>(known.width);
    if (head[2] < 0 || file_.size() != needed) {
      throw IoError(cat(path, ": has ", file_.size(), " bytes, but its header says ", head[2],
                        " tokens, which take ", needed));
    }
    width_ = known.width;
    header_ = kHeader;
    format_ = "llm.c";
  }
  const std::uint64_t bytes = file_.size() - header_;
  if (bytes % static_cast<std::uint64_t>(width_) != 0) {
    throw IoError(
        cat(path, ": has ", bytes, " bytes, which is no number of ids of ", width_, " bytes"));
  }
  tokens_ = static_cast<std::int64_t>(bytes / static_cast<std::uint64_t>(width_));
}

void RawTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* to) const {
  FOVEA_ASSERT(begin >= 0 && count >= 0 && count <= size() - begin);
  if (count == 0) return;
  const unsigned char* from = file_.data() + header_ + begin * width_;
  if (width_ == 4) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = from[2 * i] | from[2 * i + 1] << 8;
}

std::int64_t RawTokens::usual_vocab() const {
  if (width_ == 2) return 50257;
  return header_ > 0 ? 128256 : 0;
}

std::uint64_t RawTokens::sampled_hash() const {
  constexpr std::uint64_t kPieces = 64, kPiece = std::uint64_t{64} << 10;
  const std::uint64_t size = file_.size();
  Xxh3 hash;
  hash.update(&size, sizeof size);
  if (size <= kPieces * kPiece) {
    hash.update(file_.data(), size);
    return hash.value();
  }
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    const std::uint64_t begin = (size - kPiece) / (kPieces - 1) * i;
    hash.update(file_.data() + (i + 1 == kPieces ? size - kPiece : begin), kPiece);
  }
  return hash.value();
}

}  // namespace fovea::data
