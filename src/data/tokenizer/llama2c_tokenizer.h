#pragma once
// The tokenizer.bin of llama2.c: SentencePiece BPE pieces with scores.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/tokenizer/merges.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// Layout: int32 length of the longest piece, then for each id f32 score, int32 length, bytes;
// little endian, to the end of the file. Ids 0 to 2 are unknown, begin and end of text; pieces
// "<0xNN>" are bytes. Encoding: a space goes before a text that is not empty. Characters that are
// no piece become their bytes. Then neighbours whose bytes together are a piece are joined, the
// best score first, the leftmost of equals. A begin of text is not added. Decoding drops one space
// at the beginning of a text: of `ids` and behind each begin of text, which, like an end of text,
// has no bytes itself. So decode(encode(x)) is x for UTF-8 and other bytes alike.
class Llama2cTokenizer final : public Tokenizer {
 public:
  // Throws IoError for a file that is not of this layout.
  static Llama2cTokenizer read(const std::string& path, std::string bytes);

  std::string_view kind() const override { return "llama2c"; }
  std::int32_t vocab_size() const override { return pieces_.size(); }
  std::string fingerprint() const override;
  void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string piece(std::int32_t id) const override;
  // The space before a text makes it indivisible.
  std::size_t safe_cut(std::string_view, std::size_t) const override { return 0; }
  std::optional<std::int32_t> begin_of_text() const override { return 1; }
  std::optional<std::int32_t> end_of_text() const override { return 2; }
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.bin", bytes_}}; }

 private:
  Llama2cTokenizer() { byte_tokens_.fill(-1); }
  void parse(const std::string& path);
  void add_merges();
  void encode_part(std::string_view part, std::vector<std::int32_t>& ids) const;

  std::string bytes_;                          // the file
  Pieces pieces_;                              // by id; the spelling, "<0x0A>" for a byte
  std::vector<float> scores_;                  // by id
  std::vector<std::string> texts_;             // by id; what a token stands for
  std::array<std::int32_t, 256> byte_tokens_;  // -1: none
  Merges merges_;
  bool words_apart_ = true;  // no piece has a space behind another character
};

}  // namespace fovea::data
