#include "data/eval_text.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/documents.h"
#include "data/shard.h"
#include "data/text_files.h"
#include "data/token_files.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

class Both final : public TokenSink {
 public:
  Both(TokenSink& a, TokenSink& b) : a_(a), b_(b) {}
  void tokens(std::span<const std::int32_t> ids) override {
    a_.tokens(ids);
    b_.tokens(ids);
  }
  void end_document() override {
    a_.end_document();
    b_.end_document();
  }

 private:
  TokenSink &a_, &b_;
};

// Passes documents on, and counts each on its own.
class DocumentCounter final : public TextSink {
 public:
  explicit DocumentCounter(TextSink& to) : to_(to) {}
  void begin_document(const std::string& where, std::uint64_t left_out) override {
    to_.begin_document(where, left_out);
  }
  void text(std::string_view piece) override {
    counter_.add(piece);
    for (const char c : piece) {
      if (c == ' ') {
        ++waiting_;
      } else if (c < '\t' || c > '\r') {
        if (begun_) inner_spaces_ += waiting_;
        begun_ = true;
        waiting_ = 0;
      }
    }
    to_.text(piece);
  }
  void end_document() override {
    counter_.end_document();
    documents_.push_back(std::exchange(counter_, {}).counts());
    to_.end_document();
  }
  std::vector<TextCounts> documents() && { return std::move(documents_); }
  std::int64_t inner_spaces() const { return inner_spaces_; }

 private:
  TextSink& to_;
  TextCounter counter_;
  std::vector<TextCounts> documents_;
  bool begun_ = false;
  std::int64_t inner_spaces_ = 0, waiting_ = 0;
};

EvalPart read_text(const DataConfig& config, const std::string& path, Split split,
                   const Tokenizer& tokenizer) {
  const TextSplit files = find_text(path, split, wikitext_form(tokenizer));
  const auto tokens = std::make_shared<MemoryTokens>(tokenizer.vocab_size());
  TokenHasher hasher;
  Both both(*tokens, hasher);
  TokenEncoder encoder(tokenizer, 1, both);
  DocumentCounter counter(encoder);
  EvalPart out;
  out.removed = read_documents(files, {config.text_field, config.val_fraction}, counter);
  encoder.finish();
  out.split.counts = encoder.counts();
  if (out.split.counts.bytes == 0) {
    throw IoError(cat(path, ": the ", name_of(split), " split has no bytes (files ",
                      files.files.size(),
                      files.by_fraction ? cat(", data.val_fraction ", config.val_fraction, ")")
                                        : std::string(")"),
                      "; give more text"));
  }
  check_wikitext(files, out.split.counts);
  out.layout = files.layout;
  for (const TextFile& file : files.files)
    out.files.push_back(file.name);
  if (files.by_fraction)
    out.fraction = split == Split::train ? 1 - config.val_fraction : config.val_fraction;
  out.inner_spaces = counter.inner_spaces();
  out.documents = std::move(counter).documents();
  out.split.path = path;
  out.split.split = split;
  out.split.tokens = tokens;
  out.split.vocab = tokenizer.vocab_size();
  out.split.has_counts = true;
  out.split.tokenizer_fingerprint = tokenizer.fingerprint();
  out.split.fingerprint = hasher.fingerprint(out.split.tokenizer_fingerprint);
  out.split.summary = cat("text: ", text_summary(files, out.split.counts, out.removed), ", ",
                          tokens->size(), " ", tokenizer.kind(), " tokens");
  return out;
}

// Whether files of this folder or pattern are shared out, as open_split() does.
bool by_fraction(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return true;
  for (const std::string& name : list_files(path)) {
    if (!name.ends_with(".bin") || name.find('/') != std::string::npos) continue;
    std::string_view stem(name);
    stem.remove_suffix(std::string_view(".bin").size());
    std::string_view word = take_last_component(stem);
    if (word.find_first_not_of("0123456789") == std::string_view::npos)
      word = take_last_component(stem);
    if (split_named(word) == Split::validation) return false;
  }
  return true;
}

EvalPart read_tokens(const DataConfig& config, const std::string& path, Split split) {
  EvalPart out;
  out.split = open_split(config, path, split);
  const std::string folder = find_shard(path, split);
  if (folder.empty()) {
    out.layout = "token files";
    if (fs::is_regular_file(path)) out.files.push_back(fs::path(path).filename().string());
    if (split != Split::test && by_fraction(path))
      out.fraction = split == Split::train ? 1 - config.val_fraction : config.val_fraction;
    return out;
  }
  const ShardManifest manifest = read_shard_manifest(folder);
  out.layout = manifest.recipe.layout;
  if (manifest.recipe.by_fraction) {
    const double held_out = manifest.recipe.val_fraction;
    out.fraction = split == Split::train ? 1 - held_out : held_out;
  }
  out.removed = manifest.removed;
  for (const SourceFile& file : manifest.recipe.sources)
    out.files.push_back(file.name);
  return out;
}

void require_one_tokenizer(const std::vector<EvalPart>& parts) {
  for (const EvalPart& part : parts) {
    const TokenSplit &one = part.split, &first = parts.front().split;
    if (one.tokenizer_fingerprint == first.tokenizer_fingerprint) continue;
    throw ConfigError(cat("data.mix: ", one.path, " has another tokenizer (",
                          one.tokenizer_fingerprint, ") than ", first.path, " (",
                          first.tokenizer_fingerprint, ")"));
  }
}

}  // namespace

std::optional<TextCounts> EvalText::counts() const {
  TextCounts sum;
  for (const EvalPart& part : parts) {
    if (!part.split.has_counts) return std::nullopt;
    sum += part.split.counts;
  }
  return sum;
}

EvalText open_eval_text(const DataConfig& config, Split split) {
  EvalText out;
  out.split = split;
  out.tokenizer = open_data_tokenizer(config);
  for (const std::string& path : corpus_paths(config)) {
    out.parts.push_back(config.kind == "text" ? read_text(config, path, split, *out.tokenizer)
                                              : read_tokens(config, path, split));
  }
  require_one_tokenizer(out.parts);
  const bool prepared = out.parts.front().split.has_counts;
  if (out.tokenizer != nullptr && prepared) out.marks = document_marks(*out.tokenizer);
  return out;
}

bool holds_tokens(const std::string& path) {
  if (path.ends_with(".bin")) return true;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  if (!shards_in(path).empty()) return true;
  for (const std::string& name : list_files(path)) {
    if (name.ends_with(".bin") && name.find('/') == std::string::npos) return true;
  }
  return false;
}

}  // namespace fovea::data
