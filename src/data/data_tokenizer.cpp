// Which tokenizer a configuration means. See token_split.h.

#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/documents.h"
#include "data/shard_manifest.h"
#include "data/token_files.h"
#include "data/token_split.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/word_tokenizer.h"

namespace fovea::data {

namespace {

class WordsOf final : public TextSink {
 public:
  void text(std::string_view piece) override { counter_.add(piece); }
  void end_document() override { counter_.add("\n"); }  // words do not go on in the next one
  Pieces finish() { return counter_.finish(); }

 private:
  WordCounter counter_;
};

class CharactersOf final : public TextSink {
 public:
  void text(std::string_view piece) override { document_.add(piece); }
  // A character that is cut off does not go on in the next document.
  void end_document() override {
    for (const std::uint32_t c : std::exchange(document_, {}).finish())
      seen_.insert(c);
  }
  std::vector<std::uint32_t> finish() { return {seen_.begin(), seen_.end()}; }

 private:
  CharCounter document_;
  std::set<std::uint32_t> seen_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_for(const std::string& name,
                                         const std::vector<std::string>& paths,
                                         const std::string& text_field, double val_fraction) {
  if (name != "word" && name != "char") return open_tokenizer(name);
  const WikiTextForm form = name == "word" ? WikiTextForm::tokens : WikiTextForm::raw;
  WordsOf words;
  CharactersOf characters;
  TextSink& sink = name == "word" ? static_cast<TextSink&>(words) : characters;
  for (const std::string& path : paths) {
    try {
      read_documents(find_text(path, Split::train, form), {text_field, val_fraction}, sink);
    } catch (const IoError& e) {
      throw IoError(cat(e.what(), "; the vocabulary of tokenizer ", name,
                        " is made of the training split; or give one: ", name, ":FILE"));
    }
  }
  const std::string from = join(paths, ", ");
  if (name == "word") return std::make_unique<WordTokenizer>(from, words.finish());
  return std::make_unique<CharTokenizer>(from, characters.finish());
}

std::unique_ptr<Tokenizer> open_data_tokenizer(const DataConfig& config) {
  const std::vector<std::string> paths = corpus_paths(config);
  if (config.kind == "text")
    return tokenizer_for(config.tokenizer, paths, config.text_field, config.val_fraction);
  if (config.kind != "tokens") return nullptr;
  if (config.tokenizer != "byte") return open_tokenizer(config.tokenizer);
  return open_shard_tokenizer(paths.at(0));
}

std::int64_t data_vocab(const DataConfig& config) {
  if (config.kind == "text") return open_data_tokenizer(config)->vocab_size();
  std::int64_t vocab = 0;
  for (const std::string& path : corpus_paths(config))
    vocab = std::max(vocab, token_files_vocab(config, path));
  return vocab;
}

}  // namespace fovea::data
