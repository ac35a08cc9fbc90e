// fovea data prepare, fovea data inspect.

#include <charconv>
#include <cstdint>
#include <string>

#include "command_line.h"
#include "core/log.h"
#include "core/text.h"
#include "data/inspect_data.h"
#include "data/prepare.h"
#include "data/quote.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

double number_of(const std::string& text, const char* option) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end)
    throw ConfigError(cat("fovea data prepare: ", option, ": '", text, "' is not a number"));
  return value;
}

// A line a split and one every 64 MiB: few enough for a log.
class Reporter {
 public:
  void operator()(const data::PrepareProgress& progress) {
    using Stage = data::PrepareProgress::Stage;
    constexpr std::int64_t kStep = std::int64_t{64} << 20;
    const char* const split = data::name_of(progress.split);
    if (progress.stage == Stage::hashing) log::line(cat(split, ": hashing the sources"));
    if (progress.stage == Stage::split_done) log::line(cat(split, ": done"));
    if (progress.stage == Stage::encoding && progress.bytes >= next_) {
      log::line(cat(split, ": ", human_bytes(static_cast<double>(progress.bytes)), " of text"));
      next_ = progress.bytes + kStep;
    }
    if (progress.stage != Stage::encoding) next_ = kStep;
  }

 private:
  std::int64_t next_ = 0;
};

train::JsonObject counts_json(const data::TextCounts& counts, const data::Removed& removed) {
  train::JsonObject out;
  out.add("documents", counts.documents).add("bytes", counts.bytes);
  out.add("characters", counts.characters).add("words", counts.words).add("lines", counts.lines);
  out.add("bytes_not_utf8", counts.invalid_bytes);
  out.add("byte_order_marks_removed", removed.byte_order_marks);
  out.add("carriage_returns_removed", removed.carriage_returns);
  return out;
}

std::string split_json(const data::PreparedSplit& split) {
  const data::ShardManifest& m = split.manifest;
  train::JsonObject out = counts_json(m.counts, m.removed);
  out.add("split", data::name_of(m.recipe.split)).add("path", split.folder);
  out.add("tokens", m.tokens).add("token_bytes", m.token_bytes).add("vocab", m.recipe.vocab);
  out.add("tokenizer", m.recipe.tokenizer);
  out.add("tokenizer_fingerprint", m.recipe.tokenizer_fingerprint);
  out.add("layout", m.recipe.layout).add("sources", m.recipe.sources.size());
  return out.add("fingerprint", m.fingerprint).add("kept", split.kept).str();
}

// A sample may begin and end within a character, and bytes may be none at all; JSON is UTF-8.
std::string as_utf8(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const int bytes = data::utf8_length(text, at);
    out += bytes == 0 ? "\xEF\xBF\xBD" : text.substr(at, static_cast<std::size_t>(bytes));
    at += bytes == 0 ? 1 : static_cast<std::size_t>(bytes);
  }
  return out;
}

std::string report_json(const data::DataSplitReport& report) {
  train::JsonObject out = counts_json(report.counts, report.removed);
  if (!report.has_counts) out = {};
  out.add("name", report.name).add("path", report.path).add("format", report.format);
  if (report.tokens >= 0) out.add("tokens", report.tokens).add("vocab", report.vocab);
  out.add("tokenizer", report.tokenizer).add("fingerprint", report.fingerprint);
  std::string samples;
  for (const data::DataSample& sample : report.samples) {
    std::vector<std::string> ids;
    for (const std::int32_t id : sample.ids)
      ids.push_back(cat(id));
    samples += cat(samples.empty() ? "" : ",", train::JsonObject()
                                                   .add("first", sample.first)
                                                   .raw("ids", cat("[", join(ids, ","), "]"))
                                                   .add("text", as_utf8(sample.text))
                                                   .str());
  }
  return out.raw("samples", cat("[", samples, "]")).str();
}

}  // namespace

ExitCode data_prepare(const Arguments& arguments, Output& out) {
  data::PrepareOptions options;
  std::string fraction = "0.1";
  CommandLine line(
      "data prepare",
      "Reads texts once and writes their tokens as memory-mapped shards, for data.kind: tokens. An "
      "interrupted call leaves no DIR; the same call again goes on.");
  line.required("SRC", options.source,
                "a text file (plain, gzip or JSON lines), a folder of them (with splits in "
                "train/, validation/, test/, or by file names as WikiText's), or a pattern")
      .option("--out", options.out, "the folder to make")
      .option("--tokenizer", options.tokenizer,
              "byte (default), word, char, or a tokenizer's file or folder")
      .option("--vocab-from", options.vocab_from,
              "word, char: a text to make the vocabulary of (default: the training split)")
      .option("--val-fraction", fraction,
              "share of every document that is held out where SRC names no validation split "
              "(default 0.1)")
      .option("--text-field", options.text_field, "the key of JSON lines (default text)")
      .option("--jobs", options.jobs, 1, "threads (default 1); no bit depends on it")
      .flag("--overwrite", options.overwrite, "replace other prepared data in DIR");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  options.val_fraction = number_of(fraction, "--val-fraction");
  const data::Prepared prepared = data::prepare(options, Reporter());
  std::string splits;
  for (const data::PreparedSplit& split : prepared.splits) {
    const data::ShardManifest& m = split.manifest;
    out.line(cat(data::name_of(m.recipe.split), ": ", m.tokens, " tokens of ", m.counts.documents,
                 " documents, ", m.counts.words, " words, ", m.counts.bytes,
                 " clean bytes (removed ", m.removed.byte_order_marks, " byte order marks and ",
                 m.removed.carriage_returns, " CR before LF; ", m.counts.invalid_bytes,
                 " bytes are not UTF-8)", split.kept ? ", was there" : ""));
    splits += cat(splits.empty() ? "" : ",", split_json(split));
  }
  out.line(prepared.nothing_to_do ? cat(prepared.folder, " is whole: nothing to do.")
                                  : cat("Wrote ", prepared.folder, "."));
  out.record().add("path", prepared.folder).add("nothing_to_do", prepared.nothing_to_do);
  out.record().raw("splits", cat("[", splits, "]"));
  return ExitCode::ok;
}

ExitCode data_inspect(const Arguments& arguments, Output& out) {
  std::string path;
  int samples = 2;
  CommandLine line("data inspect",
                   "Sums up prepared data (every block is checked), token files or texts.");
  line.required("DIR|FILE", path, "a prepared folder, token files, or texts")
      .option("--samples", samples, 0, "pieces of tokens to show, a split (default 2)");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  const std::vector<data::DataSplitReport> reports = data::inspect_data(path, samples);
  out.line(data::text_of(reports));
  std::string splits;
  for (const data::DataSplitReport& report : reports)
    splits += cat(splits.empty() ? "" : ",", report_json(report));
  out.record().add("path", path).raw("splits", cat("[", splits, "]"));
  return ExitCode::ok;
}

}  // namespace fovea::apps
