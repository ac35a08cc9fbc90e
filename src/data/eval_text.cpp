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

// Of every document, where `held_out` of it is.
double share_of(Split split, double held_out) {
  return split == Split::train ? 1 - held_out : held_out;
}

EvalPart read_text(const DataConfig& config, const std::string& path, Split split,
                   const Tokenizer& tokenizer) {
  std::optional<DocumentCounter> counter;
  EncodedText text =
      encode_text(config, path, split, tokenizer,
                  [&](TextSink& encoder) -> TextSink& { return counter.emplace(encoder); });
  EvalPart out;
  out.split = std::move(text.split);
  out.removed = text.removed;
  out.layout = text.files.layout;
  for (const TextFile& file : text.files.files)
    out.files.push_back(file.name);
  if (text.files.by_fraction) out.fraction = share_of(split, config.val_fraction);
  out.inner_spaces = counter->inner_spaces();
  out.documents = std::move(*counter).documents();
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
      out.fraction = share_of(split, config.val_fraction);
    return out;
  }
  const ShardManifest manifest = read_shard_manifest(folder);
  out.layout = manifest.recipe.layout;
  if (manifest.recipe.by_fraction) out.fraction = share_of(split, manifest.recipe.val_fraction);
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
