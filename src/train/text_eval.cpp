#include "train/text_eval.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "core/text.h"
#include "data/json_records.h"

namespace fovea::train {

namespace {

constexpr const char* kPart = "only a part of the split was scored (eval.max_batches)";
constexpr const char* kNoText = "the data is token files, which do not tell their text";

std::optional<double> bits(double nats, const Divisor& divisor) {
  if (!divisor.count || *divisor.count == 0) return std::nullopt;
  return nats / (static_cast<double>(*divisor.count) * std::numbers::ln2);
}

WordConvention convention_of(const data::EvalSource& source, WordConvention asked) {
  if (asked != WordConvention::automatic) return asked;
  const data::EvalText& text = source.text();
  bool wikitext = text.tokenizer != nullptr && text.tokenizer->kind() == "word";
  for (const data::EvalPart& part : text.parts)
    wikitext = wikitext || part.layout.find("wikitext") != std::string::npos;
  return wikitext ? WordConvention::wikitext : WordConvention::whitespace;
}

const char* name_of(WordConvention convention) {
  switch (convention) {
    case WordConvention::automatic:
      return "auto";
    case WordConvention::wikitext:
      return "wikitext";
    case WordConvention::wikitext_1:
      return "wikitext-1";
    case WordConvention::whitespace:
      return "whitespace";
  }
  return "?";
}

Divisor spaces_of(const data::EvalSource& source) {
  if (source.text().parts.size() > 1) return {{}, "wikitext-1 is defined for one text"};
  const auto& spaces = source.text().parts.front().inner_spaces;
  if (!spaces) return {{}, "wikitext-1 needs the text, not prepared tokens"};
  return {*spaces, "pieces of the stripped text between single spaces, less one"};
}

Divisor words_of(const data::EvalSource& source, bool whole, WordConvention convention,
                 std::int64_t given) {
  if (!whole) return {{}, kPart};
  if (given > 0) return {given, "given by eval.words"};
  const auto counts = source.counts();
  if (!counts) return {{}, kNoText};
  const std::string also = source.windows().unscored() > 0 ? ", those of unscored tokens too" : "";
  if (convention == WordConvention::wikitext_1) return spaces_of(source);
  if (convention == WordConvention::wikitext)
    return {counts->words + counts->lines, cat("words, and one <eos> for each line", also)};
  return {counts->words, cat("words between white space", also)};
}

// Characters or bytes.
Divisor text_of(const data::EvalSource& source, bool whole, std::optional<std::int64_t> scored,
                const char* what) {
  if (!source.counts()) return {{}, kNoText};
  if (!scored && !whole) return {{}, kPart};
  if (!scored) return {{}, "the data's tokenizer is not known"};
  return {scored, cat(what, source.windows().unscored() > 0 ? ", without unscored tokens" : "",
                      whole ? "" : ", of the scored tokens alone")};
}

void describe_data(const data::EvalSource& source, TextEvaluation& out) {
  const data::EvalText& text = source.text();
  const data::EvalPart& first = text.parts.front();
  out.split = data::name_of(text.split);
  out.fraction = first.fraction;
  const bool unsplit = first.layout != "split folders" && first.layout != "split files" &&
                       !first.layout.starts_with("wikitext");
  if (unsplit && first.fraction == 1 && !first.files.empty()) out.split = "all";
  for (const data::EvalPart& part : text.parts) {
    out.paths.push_back(part.split.path);
    out.layouts.push_back(part.layout);
    out.files.insert(out.files.end(), part.files.begin(), part.files.end());
    out.removed += part.removed;
  }
  out.documents = source.documents();
  out.tokenizer_fingerprint = first.split.tokenizer_fingerprint;
  if (text.tokenizer != nullptr) {
    out.tokenizer = text.tokenizer->kind();
    if (out.tokenizer_fingerprint.empty())
      out.tokenizer_fingerprint = text.tokenizer->fingerprint();
  }
  for (const data::EvalPart& part : text.parts)
    out.vocabulary = std::max(out.vocabulary, part.split.vocab);
}

}  // namespace

double TextEvaluation::token_perplexity() const {
  return std::exp(nats / static_cast<double>(targets));
}
std::optional<double> TextEvaluation::word_perplexity() const {
  if (!words.count || *words.count == 0) return std::nullopt;
  return std::exp(nats / static_cast<double>(*words.count));
}
std::optional<double> TextEvaluation::bits_per_character() const {
  return bits(nats, characters);
}
std::optional<double> TextEvaluation::bits_per_byte() const {
  return bits(nats, bytes);
}

TextEvaluation text_evaluation(const Evaluation& result, const data::EvalSource& source,
                               const EvalConfig& config) {
  TextEvaluation out;
  out.nats = result.metrics.loss_sum;
  out.targets = result.metrics.targets;
  const data::EvalWindows& windows = source.windows();
  const bool whole = result.examples == windows.size();
  const WordConvention convention = convention_of(source, config.word_convention);
  out.word_convention = config.words > 0 ? "given" : name_of(convention);
  out.words = words_of(source, whole, convention, config.words);
  const std::optional<data::ScoredText> scored = source.scored(result.examples);
  const auto part = [&](std::int64_t data::ScoredText::*count) {
    return scored ? std::optional((*scored).*count) : std::nullopt;
  };
  out.characters = text_of(source, whole, part(&data::ScoredText::characters),
                           "code points after BOM and CR removal");
  out.bytes = text_of(source, whole, part(&data::ScoredText::bytes),
                      "clean bytes after BOM and CR removal");
  out.context = windows.cut().context;
  out.stride = windows.cut().stride;
  out.windows = result.examples;
  out.all_windows = windows.size();
  out.streams = windows.streams();
  out.prefix = source.prefix();
  out.begin_of_text = source.text().marks.begin;
  out.by_document = source.by_document();
  out.unscored = windows.unscored();
  describe_data(source, out);
  return out;
}

std::vector<DocumentScore> document_scores(const data::EvalSource& source, std::int64_t windows,
                                           const std::vector<double>& losses) {
  std::vector<DocumentScore> out;
  std::vector<std::string> names;
  for (const data::EvalPart& part : source.text().parts)
    names.insert(names.end(), part.files.begin(), part.files.end());
  // Of a text too short for the split nothing is left, so files may be more than documents.
  const bool named = !names.empty() &&
                     static_cast<std::int64_t>(names.size()) == source.documents() &&
                     std::none_of(names.begin(), names.end(), data::is_json_lines_name);
  std::vector<data::EvalSource::Target> targets;
  std::size_t at = 0;
  for (std::int64_t window = 0; window < windows; ++window) {
    targets.clear();
    source.targets_of(window, targets);
    for (const data::EvalSource::Target& target : targets) {
      if (out.empty() || out.back().document != target.document) {
        DocumentScore& next = out.emplace_back();
        next.document = target.document;
        if (named) next.name = names[static_cast<std::size_t>(target.document)];
        const auto counts = source.document_counts(target.document);
        if (counts) next.bytes = counts->bytes;
        if (counts && counts->words > 0) next.words = counts->words;
      }
      out.back().nats += losses[at++];
      ++out.back().targets;
    }
  }
  if (windows < source.size() && !out.empty()) {  // perhaps a part of it
    out.back().bytes.reset();
    out.back().words.reset();
  }
  return out;
}

}  // namespace fovea::train
