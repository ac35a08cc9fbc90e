#include "data/inspect_data.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "core/error.h"
#include "core/text.h"
#include "data/documents.h"
#include "data/quote.h"
#include "data/raw_tokens.h"
#include "data/shard.h"
#include "data/text_files.h"
#include "data/text_layout.h"
#include "data/token_files.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSampleTokens = 64;
constexpr std::int64_t kPiece = std::int64_t{1} << 18;

std::vector<DataSample> take_samples(const TokenArray& tokens, const Tokenizer* tokenizer,
                                     int samples) {
  std::vector<DataSample> out;
  const std::int64_t length = std::min(kSampleTokens, tokens.size());
  for (int i = 0; i < samples && length > 0; ++i) {
    DataSample sample;
    sample.first = (tokens.size() - length) * i / std::max(1, samples - 1);
    sample.ids.resize(static_cast<std::size_t>(length));
    tokens.read(sample.first, length, sample.ids.data());
    if (tokenizer != nullptr) sample.text = tokenizer->decode(sample.ids);
    out.push_back(std::move(sample));
  }
  return out;
}

// Reading a token checks its block.
void check_all(const TokenArray& tokens) {
  std::int32_t id;
  for (std::int64_t at = 0; at < tokens.size(); at += kPiece)
    tokens.read(at, 1, &id);
  if (tokens.size() > 0) tokens.read(tokens.size() - 1, 1, &id);
}

DataSplitReport inspect_shard(const std::string& folder, int samples) {
  const ShardTokens shard(folder);
  check_all(shard);
  const std::unique_ptr<Tokenizer> tokenizer = open_shard_tokenizer(folder);
  const ShardManifest& m = shard.manifest();
  DataSplitReport out;
  out.name = name_of(m.recipe.split);
  out.path = folder;
  out.format = "shard";
  out.tokens = m.tokens;
  out.vocab = m.recipe.vocab;
  out.has_counts = true;
  out.counts = m.counts;
  out.removed = m.removed;
  out.tokenizer = m.recipe.tokenizer;
  out.fingerprint = m.fingerprint;
  out.layout = cat(m.recipe.layout, m.recipe.by_fraction ? cat(", ", m.recipe.val_fraction,
                                                               " of every document held out")
                                                         : std::string());
  out.samples = take_samples(shard, tokenizer.get(), samples);
  return out;
}

DataSplitReport inspect_raw(const std::string& path, int samples) {
  const RawTokens file(path, 2);
  DataSplitReport out;
  out.name = fs::path(path).filename().string();
  out.path = path;
  out.format = file.format();
  out.tokens = file.size();
  out.vocab = file.usual_vocab();
  out.fingerprint = hash_hex(file.sampled_hash());
  out.samples = take_samples(file, nullptr, samples);
  return out;
}

class Counting final : public TextSink {
 public:
  void text(std::string_view piece) override { counter_.add(piece); }
  void end_document() override { counter_.end_document(); }
  const TextCounts& counts() const { return counter_.counts(); }

 private:
  TextCounter counter_;
};

DataSplitReport inspect_text(TextSplit split) {
  split.by_fraction = false;  // all of it
  Counting counting;
  DataSplitReport out;
  out.removed = read_documents(split, {}, counting);
  out.name = split.layout.starts_with("split") || split.layout.starts_with("wikitext")
                 ? name_of(split.split)
                 : "all";
  out.path = split.source;
  out.format = "text";
  out.has_counts = true;
  out.counts = counting.counts();
  out.layout =
      cat(split.layout, ", ", split.files.size(), split.files.size() == 1 ? " file" : " files");
  return out;
}

std::string lines_of(const DataSplitReport& r) {
  std::string out = cat(quote(r.name, 200), ": ", r.format, " ", quote(r.path, 200));
  if (!r.layout.empty()) out += cat(", ", r.layout);
  if (r.tokens >= 0) {
    out += cat("\n  ", r.tokens, " tokens");
    if (!r.tokenizer.empty()) out += cat(" (", r.tokenizer, ")");
    if (r.vocab > 0) out += cat(", vocabulary ", r.vocab);
    out += cat(", fingerprint ", r.fingerprint);
  }
  if (r.has_counts) {
    out += cat("\n  ", r.counts.documents, " documents, ", r.counts.lines, " lines, ",
               r.counts.words, " words, ", r.counts.characters, " characters, ", r.counts.bytes,
               " clean bytes\n  removed ", r.removed.byte_order_marks, " byte order marks and ",
               r.removed.carriage_returns, " CR before LF; ", r.counts.invalid_bytes,
               " bytes are not UTF-8");
  }
  for (const DataSample& sample : r.samples) {
    std::string ids;
    for (std::size_t i = 0; i < sample.ids.size() && i < 16; ++i)
      ids += cat(i == 0 ? "" : " ", sample.ids[i]);
    out += cat("\n  at ", sample.first, ": ", ids, sample.ids.size() > 16 ? " ..." : "");
    if (!sample.text.empty()) out += cat("\n    ", quote(sample.text, 400));
  }
  return out;
}

}  // namespace

std::vector<DataSplitReport> inspect_data(const std::string& path, int samples) {
  std::vector<DataSplitReport> out;
  for (const std::string& folder : shards_in(path))
    out.push_back(inspect_shard(folder, samples));
  if (!out.empty()) return out;
  std::error_code code;
  if (fs::is_directory(path, code)) {
    for (const std::string& name : list_files(path)) {
      if (name.ends_with(".bin") && name.find('/') == std::string::npos)
        out.push_back(inspect_raw((fs::path(path) / name).string(), samples));
    }
  } else if (path.ends_with(".bin")) {
    out.push_back(inspect_raw(path, samples));
  }
  if (!out.empty()) return out;
  for (TextSplit& split : find_splits(path, WikiTextForm::raw)) {
    // Without splits of its own a source is one text.
    if (split.by_fraction && split.split == Split::validation) continue;
    out.push_back(inspect_text(std::move(split)));
  }
  return out;
}

std::string text_of(const std::vector<DataSplitReport>& reports) {
  std::string out;
  for (const DataSplitReport& report : reports)
    out += cat(out.empty() ? "" : "\n", lines_of(report));
  return out;
}

}  // namespace fovea::data
