#include "data/token_split.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/documents.h"
#include "data/shard.h"
#include "data/token_encoder.h"
#include "data/token_files.h"

namespace fovea::data {

namespace {

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

std::unique_ptr<Tokenizer> text_tokenizer(const DataConfig& config) {
  return tokenizer_for(config.tokenizer, corpus_paths(config), config.text_field,
                       config.val_fraction);
}

}  // namespace

WikiTextForm wikitext_form(const Tokenizer& tokenizer) {
  return tokenizer.kind() == "word" ? WikiTextForm::tokens : WikiTextForm::raw;
}

std::string text_summary(const TextSplit& files, const TextCounts& counts, const Removed& removed) {
  return cat(name_of(files.split), " split of ", files.files.size(),
             files.files.size() == 1 ? " file" : " files", " (", files.layout, "), ",
             counts.documents, counts.documents == 1 ? " document, " : " documents, ", counts.bytes,
             " clean bytes (removed ", removed.byte_order_marks, " byte order marks and ",
             removed.carriage_returns, " CR before LF",
             counts.invalid_bytes > 0
                 ? cat("; kept ", counts.invalid_bytes, " bytes that are not UTF-8")
                 : std::string(),
             ")");
}

void check_wikitext(const TextSplit& files, const TextCounts& counts) {
  if (!files.layout.starts_with("wikitext") || files.by_fraction) return;
  // Source: data.md 3.3 and 3.4; WikiText-103, WikiText-2.
  const std::int64_t lines[3][2] = {{1801350, 36718}, {3760, 3760}, {4358, 4358}};
  const auto& known = lines[static_cast<int>(files.split)];
  if (std::find(std::begin(known), std::end(known), counts.lines) != std::end(known)) return;
  log::warn(cat(files.source, ": the ", name_of(files.split), " split has ", counts.lines,
                " lines, but WikiText-103 has ", known[0], " and WikiText-2 ", known[1]));
}

EncodedText encode_text(const DataConfig& config, const std::string& path, Split split,
                        const Tokenizer& tokenizer,
                        const std::function<TextSink&(TextSink&)>& through) {
  EncodedText out;
  out.files = find_text(path, split, wikitext_form(tokenizer));
  const auto tokens = std::make_shared<MemoryTokens>(tokenizer.vocab_size());
  TokenHasher hasher;
  Both both(*tokens, hasher);
  TokenEncoder encoder(tokenizer, 1, both);
  TextSink& sink = through ? through(encoder) : encoder;
  out.removed = read_documents(out.files, {config.text_field, config.val_fraction}, sink);
  encoder.finish();
  const TextCounts& counts = encoder.counts();
  if (counts.bytes == 0) {
    throw IoError(cat(path, ": the ", name_of(split), " split has no bytes (files ",
                      out.files.files.size(),
                      out.files.by_fraction ? cat(", data.val_fraction ", config.val_fraction, ")")
                                            : std::string(")"),
                      "; give more text"));
  }
  check_wikitext(out.files, counts);
  out.split.path = path;
  out.split.split = split;
  out.split.tokens = tokens;
  out.split.vocab = tokenizer.vocab_size();
  out.split.has_counts = true;
  out.split.counts = counts;
  out.split.tokenizer_fingerprint = tokenizer.fingerprint();
  out.split.fingerprint = hasher.fingerprint(out.split.tokenizer_fingerprint);
  out.split.summary = cat("text: ", text_summary(out.files, counts, out.removed), ", ",
                          tokens->size(), " ", tokenizer.kind(), " tokens");
  return out;
}

TokenSplit open_split(const DataConfig& config, const std::string& path, Split split) {
  if (config.kind != "text") return open_token_files(config, path, split);
  return encode_text(config, path, split, *text_tokenizer(config)).split;
}

}  // namespace fovea::data
