#pragma once
// A split's tokens, however the configuration says to come by them: what windows are cut from, and
// what metrics need to know of it.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/documents.h"
#include "data/example.h"
#include "data/text_counts.h"
#include "data/text_layout.h"
#include "data/text_reader.h"
#include "data/token_array.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

struct TokenSplit {
  std::string path;  // for messages
  Split split = Split::train;
  std::shared_ptr<const TokenArray> tokens;
  std::int64_t vocab = 0;   // ids are below it; readers check, files may lie
  bool has_counts = false;  // false: token files without a text
  TextCounts counts;
  std::string tokenizer_fingerprint;  // "" : not known
  std::string fingerprint;            // changes with any id or document (raw files: see RawTokens)
  std::string summary;                // one line
};

// `path` is data.path, or a corpus of data.mix.
//   kind text     read, cleaned and encoded into memory now (documents.h, token_encoder.h)
//   kind tokens   a folder that `fovea data prepare` made, or one split's folder in it; or token
//                 files (raw_tokens.h): a .bin file, a pattern, or a folder with
//                 [NAME_]{train,val,...}[_N].bin. Where a file's split is not named, validation is
//                 the last floor(val_fraction x tokens) ids of every file.
// Throws ConfigError, IoError.
TokenSplit open_split(const DataConfig& config, const std::string& path, Split split);

// A split of kind text, and what was read for it.
struct EncodedText {
  TokenSplit split;
  TextSplit files;
  Removed removed;
};
// Reads, cleans and encodes it with `tokenizer`, as open_split() does. `through`, if given, is
// called once with the encoder and returns the sink that gets the documents instead and passes them
// on to it. Throws ConfigError, IoError.
EncodedText encode_text(const DataConfig& config, const std::string& path, Split split,
                        const Tokenizer& tokenizer,
                        const std::function<TextSink&(TextSink& encoder)>& through = nullptr);

// The tokenizer of the data: data.tokenizer, or the one that prepared data has with it. The bare
// names "word" and "char" mean: with the vocabulary of the training split. Null if it is not known
// (token files and data.tokenizer not given) or there is none (generated data).
std::unique_ptr<Tokenizer> open_data_tokenizer(const DataConfig& config);
// Token ids lie below it. Throws ConfigError where it has to be given (data.vocab_size).
std::int64_t data_vocab(const DataConfig& config);

// As data.tokenizer may be: a name or path of open_tokenizer(), or "word" or "char" for a
// vocabulary of the training splits of `paths`.
std::unique_ptr<Tokenizer> tokenizer_for(const std::string& name,
                                         const std::vector<std::string>& paths,
                                         const std::string& text_field, double val_fraction);

// The form of WikiText that belongs to a tokenizer.
WikiTextForm wikitext_form(const Tokenizer& tokenizer);
// One line: files, layout, counts, and what cleaning did.
std::string text_summary(const TextSplit& files, const TextCounts& counts, const Removed& removed);
// Warns if a WikiText split has not the number of lines that it should have.
void check_wikitext(const TextSplit& files, const TextCounts& counts);

}  // namespace fovea::data
