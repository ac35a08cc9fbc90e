#pragma once
// Token id = byte.

#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view kind() const override { return "byte"; }
  std::int32_t vocab_size() const override { return 256; }
  std::string fingerprint() const override;
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string piece(std::int32_t id) const override;
  std::size_t safe_cut(std::string_view text, std::size_t) const override { return text.size(); }
};

}  // namespace fovea::data
