#pragma once
// A long run of token ids, cut into documents, wherever it is kept.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fovea::data {

class TokenArray {
 public:
  virtual ~TokenArray() = default;
  virtual std::int64_t size() const = 0;
  // Copies the ids of [begin, begin + count), which must lie inside. Safe from several threads.
  // Throws IoError if what is on disk is damaged.
  virtual void read(std::int64_t begin, std::int64_t count, std::int32_t* to) const = 0;
  // Document d is [offsets[d], offsets[d + 1]); the first offset is 0, the last size(). Empty where
  // documents are not known.
  virtual std::span<const std::uint64_t> offsets() const = 0;
};

// Receives ids in order, document by document.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void tokens(std::span<const std::int32_t> ids) = 0;
  virtual void end_document() = 0;
};

// The bytes that an id of this vocabulary takes on disk.
constexpr int token_bytes(std::int64_t vocab) {
  return vocab <= 65536 ? 2 : 4;
}

// Ids in memory, in 1, 2 or 4 bytes each as the vocabulary needs.
class MemoryTokens final : public TokenArray, public TokenSink {
 public:
  explicit MemoryTokens(std::int64_t vocab);
  std::int64_t size() const override;
  void read(std::int64_t begin, std::int64_t count, std::int32_t* to) const override;
  std::span<const std::uint64_t> offsets() const override { return offsets_; }
  void tokens(std::span<const std::int32_t> ids) override;
  void end_document() override;

 private:
  int width_;
  std::vector<std::uint8_t> one_;
  std::vector<std::uint16_t> two_;
  std::vector<std::uint32_t> four_;
  std::vector<std::uint64_t> offsets_{0};
};

// Several arrays, or parts of them, one behind the other; without documents unless every part is a
// whole array that has them.
class JoinedTokens final : public TokenArray {
 public:
  struct Part {
    std::shared_ptr<const TokenArray> tokens;
    std::int64_t begin = 0, end = 0;
  };
  explicit JoinedTokens(std::vector<Part> parts);
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::int64_t begin, std::int64_t count, std::int32_t* to) const override;
  std::span<const std::uint64_t> offsets() const override { return offsets_; }

 private:
  std::vector<Part> parts_;
  std::vector<std::int64_t> ends_;  // of the parts, in this array
  std::vector<std::uint64_t> offsets_;
};

}  // namespace fovea::data
