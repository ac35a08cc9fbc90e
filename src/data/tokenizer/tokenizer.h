#pragma once
// Text to token ids and back. A tokenizer is immutable: every function is safe from several
// threads.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace fovea::data {

// A text that the vocabulary cannot express. what() is `before`, "the text at byte N", `after`.
class NotInVocabulary : public IoError {
 public:
  NotInVocabulary(std::string before, std::size_t byte, std::string after,
                  const std::string& text = "the text");
  // The same of a text that has `bytes` more before those that were given, as `text` calls it.
  NotInVocabulary behind(std::size_t bytes, const std::string& text = "the text") const;

 private:
  std::string before_, after_;
  std::size_t byte_;
};

// A file that belongs beside a checkpoint, so that open_tokenizer(folder) gives the same tokenizer.
struct TokenizerFile {
  std::string name, bytes;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;    // "byte", "char", "word", "bpe" or "llama2c"
  virtual std::int32_t vocab_size() const = 0;  // ids are in [0, vocab_size())
  virtual std::string fingerprint() const = 0;  // 16 digits: xxh3 of kind and tables, not of layout

  // Appends the ids of a whole text. Throws IoError for what the vocabulary cannot express;
  // NotInVocabulary where it is a character.
  virtual void encode_append(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The text that ids stand for. Throws IoError for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const;
  // The bytes of one id in the middle of a text: what generation prints token by token. May be a
  // part of a UTF-8 sequence.
  virtual std::string piece(std::int32_t id) const = 0;

  // The greatest n in [from, text.size()] for which the ids of text[0, n) and of text[n, ...) are
  // those of the whole, whatever text follows; 0 if no such place is found.
  virtual std::size_t safe_cut(std::string_view text, std::size_t from) const = 0;

  // What begins a text (only llama2c has one) and what ends it or a line (word).
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }
  virtual std::optional<std::int32_t> end_of_text() const { return std::nullopt; }

  virtual std::vector<TokenizerFile> files() const { return {}; }

 protected:
  // Throws IoError unless id is in the vocabulary.
  void check_id(std::int32_t id) const;
};

struct TokenizerOptions {
  // Whether "<|endoftext|>" and the like in a text are the special tokens, not ordinary text.
  bool allow_special = false;
};

// Names: "byte" (id = byte); "char:TEXT" and "word:TEXT", whose vocabulary is made from a text file
// (plain or gzip, cleaned as TextReader does). Else a file, known by its content, or a folder with
// one of these, tried in this order:
//   tokenizer.json     Hub layout; BPE over GPT-2's byte symbols, others are refused by name
//   vocab.json + merges.txt, encoder.json + vocab.bpe     GPT-2; either file may be given
//   merges.txt or vocab.bpe     alone: the vocabulary is rebuilt, "<|endoftext|>" is the last id
//   tokenizer.bin      llama2.c (any name when given as a file)
//   one *.tiktoken     ranks of byte strings, split as GPT-2 does (r50k_base, p50k_base)
//   vocab.txt          a char or word vocabulary that files() gave
// Throws IoError with the path for a file that is missing, of another kind or inconsistent.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path,
                                          const TokenizerOptions& options = {});

// Encodes a text that arrives in pieces: the ids are those of the whole.
class StreamEncoder {
 public:
  explicit StreamEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Appends the ids that are certain by now; the rest of the text waits for more. Throws as
  // Tokenizer::encode_append() would for the whole text.
  void add(std::string_view text, std::vector<std::int32_t>& ids);
  // Appends the ids of what waits. A new text may follow.
  void finish(std::vector<std::int32_t>& ids);

 private:
  void encode(std::string_view text, std::vector<std::int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::size_t encoded_ = 0;  // bytes of the text
  std::string waiting_;
  std::size_t searched_ = 0;  // no cut is in waiting_[0, searched_)
};

}  // namespace fovea::data
