#pragma once
// Byte-level BPE as GPT-2 does it: split the text, look each piece up, merge what is no token.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/gpt2_split.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// What the readers of every layout (bpe_files.h) make of their files.
struct BpeVocabulary {
  enum class Token : std::uint8_t {
    ordinary,  // bytes that text may contain
    foreign,   // decodes to its bytes, but no text becomes it
    special,   // matched before splitting if specials are allowed
    added,     // matched before splitting always
  };
  enum class WholePiece {
    must_merge,  // a piece is one token if merging its bytes gives that token
    is_token,    // a piece that is an ordinary token is that one (tiktoken, ignore_merges)
  };
  std::string path;                           // for messages
  Pieces tokens;                              // bytes by id
  std::vector<Token> types;                   // by id
  std::array<std::int32_t, 256> byte_tokens;  // -1: the vocabulary lacks the byte
  Merges merges;
  std::vector<std::int32_t> merge_results;  // by rank; for the fingerprint
  std::optional<std::int32_t> unknown;      // stands for bytes without a token
  WholePiece whole_piece = WholePiece::must_merge;
  std::vector<TokenizerFile> files;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeVocabulary vocabulary, const TokenizerOptions& options);

  std::string_view kind() const override { return "bpe"; }
  std::int32_t vocab_size() const override { return vocabulary_.tokens.size(); }
  std::string fingerprint() const override;
  // Throws IoError for a byte without a token if there is no unknown token, and for a piece (a run
  // of letters, say) of more than 16 MiB, whose merging would take a hundred times that memory.
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string piece(std::int32_t id) const override;
  std::size_t safe_cut(std::string_view text, std::size_t from) const override;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::vector<TokenizerFile> files() const override { return vocabulary_.files; }

 private:
  class Recent;
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids, Recent& recent) const;
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;
  bool merges_to_itself(std::int32_t id) const;

  BpeVocabulary vocabulary_;
  Gpt2Split split_;
  SpecialTokens specials_;
  std::optional<std::int32_t> end_of_text_;
};

}  // namespace fovea::data
