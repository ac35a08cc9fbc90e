// Finding out what a tokenizer's name or path means. See tokenizer.h.

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/text_reader.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/bpe_files.h"
#include "data/tokenizer/bpe_json.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/llama2c_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_tokenizer.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;
using Made = std::unique_ptr<Tokenizer>;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Made bpe(BpeVocabulary vocabulary, const TokenizerOptions& options) {
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), options);
}

Made char_from_text(const std::string& path) {
  CharCounter counter;
  TextReader reader(path);
  for (std::string chunk; reader.read(chunk);)
    counter.add(chunk);
  return std::make_unique<CharTokenizer>(path, counter.finish());
}

Made word_from_text(const std::string& path) {
  WordCounter counter;
  TextReader reader(path);
  for (std::string chunk; reader.read(chunk);)
    counter.add(chunk);
  return std::make_unique<WordTokenizer>(path, counter.finish());
}

// The file that belongs to `path` under one of these names, or "".
std::string beside(const fs::path& path, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (is_there(path.parent_path() / name)) return (path.parent_path() / name).string();
  return {};
}

Made open_json(const std::string& path, const TokenizerOptions& options) {
  const std::string text = read_tokenizer_file(path);
  if (has_model_object(text)) return bpe(read_hub_file(path), options);
  const bool old_names = fs::path(path).filename() == "encoder.json";
  const std::string merges = old_names ? beside(path, {"vocab.bpe", "merges.txt"})
                                       : beside(path, {"merges.txt", "vocab.bpe"});
  if (merges.empty()) {
    parse_vocab_json(path, text);  // what is wrong with this file comes first
    throw IoError(cat(path, ": has no merges.txt or vocab.bpe beside it"));
  }
  return bpe(read_gpt2_files(path, merges), options);
}

Made open_merges(const std::string& path, const TokenizerOptions& options) {
  const bool old_names = fs::path(path).filename() == "vocab.bpe";
  const std::string vocab = old_names ? beside(path, {"encoder.json", "vocab.json"})
                                      : beside(path, {"vocab.json", "encoder.json"});
  return bpe(vocab.empty() ? read_merges_file(path) : read_gpt2_files(vocab, path), options);
}

std::string_view first_line(std::string_view text) {
  std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool looks_like_ranks(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space + 1 == line.size()) return false;
  return line.find_first_not_of("0123456789", space + 1) == std::string_view::npos &&
         base64_decode(line.substr(0, space));
}

// The first piece is message 1, its text field 1; then come its score, field 2, or type, field 3.
bool looks_like_sentencepiece(std::string_view head) {
  if (head.size() < 5 || head[0] != '\n' || head[2] != '\n') return false;
  const auto message = static_cast<unsigned char>(head[1]);
  const auto text = static_cast<unsigned char>(head[3]);
  const std::size_t next = std::size_t{4} + text;
  return message < 0x80 && text + 2 < message && next < head.size() &&
         (head[next] == '\x15' || head[next] == '\x18');
}

Made open_file(const std::string& path, const TokenizerOptions& options) {
  const InputFile file(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 4096)), '\0');
  file.read_at(0, head.data(), head.size());
  const std::string_view line = first_line(head);
  const std::string name = fs::path(path).filename().string();
  if (looks_like_sentencepiece(head)) {
    throw IoError(cat(path,
                      ": is a SentencePiece model, which is not supported; give the model's "
                      "tokenizer.json, or convert it to llama2.c's tokenizer.bin"));
  }
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (name.ends_with(".json") || (first != std::string::npos && head[first] == '{'))
    return open_json(path, options);
  if (name.ends_with(".tiktoken") || looks_like_ranks(line))
    return bpe(read_tiktoken_file(path), options);
  if (line.starts_with("#version") || name == "merges.txt" || name == "vocab.bpe")
    return open_merges(path, options);
  if (line == CharTokenizer::kHeader) {
    return std::make_unique<CharTokenizer>(CharTokenizer::read(path, read_tokenizer_file(path)));
  }
  if (line == WordTokenizer::kEndOfLine) {
    return std::make_unique<WordTokenizer>(WordTokenizer::read(path, read_tokenizer_file(path)));
  }
  if (head.find('\0') == std::string::npos) {
    throw IoError(cat(path,
                      ": is no tokenizer file; known are tokenizer.json, vocab.json with "
                      "merges.txt, *.tiktoken, llama2.c's tokenizer.bin, and character and word "
                      "vocabularies (to make one of a text: char:",
                      path, " or word:", path, ")"));
  }
  return std::make_unique<Llama2cTokenizer>(
      Llama2cTokenizer::read(path, read_tokenizer_file(path)));
}

Made open_folder(const std::string& path, const TokenizerOptions& options) {
  const fs::path folder(path);
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json", "merges.txt",
                           "vocab.bpe", "tokenizer.bin"}) {
    if (is_there(folder / name)) return open_file((folder / name).string(), options);
  }
  std::vector<std::string> ranks;
  std::error_code code;
  fs::directory_iterator at(folder, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(".tiktoken") && name[0] != '.') ranks.push_back(name);
  }
  if (code) throw IoError(cat(path, ": cannot be listed: ", code.message()));
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() > 1) {
    throw IoError(cat(path, ": has ", ranks.size(), " rank files (", join(ranks, ", "),
                      "); give the path of one"));
  }
  if (ranks.size() == 1) return open_file((folder / ranks[0]).string(), options);
  if (is_there(folder / "vocab.txt")) return open_file((folder / "vocab.txt").string(), options);
  throw IoError(cat(path,
                    ": has no tokenizer; looked for tokenizer.json, vocab.json, encoder.json, "
                    "merges.txt, vocab.bpe, tokenizer.bin, *.tiktoken and vocab.txt"));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name_or_path,
                                          const TokenizerOptions& options) {
  if (name_or_path == "byte") return std::make_unique<ByteTokenizer>();
  if (name_or_path.starts_with("char:")) return char_from_text(name_or_path.substr(5));
  if (name_or_path.starts_with("word:")) return word_from_text(name_or_path.substr(5));
  std::error_code ignored;
  if (fs::is_directory(name_or_path, ignored)) return open_folder(name_or_path, options);
  if (!is_there(name_or_path)) {
    throw IoError(cat("tokenizer ", quote(name_or_path),
                      " is neither a name (byte, char:TEXT, word:TEXT) nor a file or folder that "
                      "exists"));
  }
  return open_file(name_or_path, options);
}

}  // namespace fovea::data
