// A language model's score as a table and as JSON. See text_eval.h.

#include "core/text.h"

#include <cstdio>

#include "train/json_text.h"
#include "train/text_eval.h"

namespace fovea::train {

namespace {

std::string decimals(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

void row(std::string& out, const char* name, const Divisor& divisor, std::optional<double> value,
         const char* unit) {
  out += cat("  ", name, padded(divisor.count ? cat(*divisor.count) : std::string("-"), 14), "  ",
             padded(value ? decimals(*value) : std::string("-"), 14), "  ", unit, "; ",
             divisor.what, "\n");
}

std::string first_names(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i)
    out += cat(i == 0 ? " (" : ", ", names[i]);
  if (names.size() > 3) out += cat(", and ", names.size() - 3, " more");
  return out.empty() ? out : out + ")";
}

std::string data_line(const TextEvaluation& e) {
  const std::string share = e.fraction == 1 ? "" : cat(", ", e.fraction, " of each document");
  return cat(e.split == "all" ? "whole text" : cat(e.split, " split"), " of ", join(e.paths, ", "),
             share, ": ", e.files.size(), e.files.size() == 1 ? " file" : " files",
             first_names(e.files), ", ", e.documents,
             e.documents == 1 ? " document" : " documents");
}

std::string protocol_line(const TextEvaluation& e) {
  const std::string start = e.prefix          ? cat("prefix ", *e.prefix)
                            : e.begin_of_text ? cat("begin of text ", *e.begin_of_text)
                                              : cat("no prefix (", e.unscored, " unscored)");
  return cat("context ", e.context, ", stride ", e.stride, ", ", start, ", positions restart, ",
             e.by_document ? "document by document" : "across documents", "; windows ", e.windows,
             " of ", e.all_windows);
}

std::string tokenizer_line(const TextEvaluation& e) {
  if (e.tokenizer_fingerprint.empty()) return cat("not known, ", e.vocabulary, " ids");
  return cat(e.tokenizer.empty() ? "" : e.tokenizer + " ", e.tokenizer_fingerprint, ", ",
             e.vocabulary, " ids");
}

void document_rows(std::string& out, const TextEvaluation& e) {
  if (e.per_document.empty()) return;
  out += "  document           nats          tokens           bytes\n";
  for (const DocumentScore& d : e.per_document) {
    out += cat("  ", padded(cat(d.document), 8), padded(decimals(d.nats), 15),
               padded(cat(d.targets), 16), padded(d.bytes ? cat(*d.bytes) : std::string("-"), 16),
               "  ", d.name, "\n");
  }
}

void add(JsonObject& to, std::string_view key, const std::optional<double>& value) {
  to.raw(key, value ? json_number(*value) : "null");
}
void add(JsonObject& to, std::string_view key, const std::optional<std::int64_t>& value) {
  to.raw(key, value ? cat(*value) : "null");
}

std::string strings(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts)
    quoted.push_back(json_string(text));
  return cat("[", join(quoted, ","), "]");
}

std::string protocol_json(const TextEvaluation& e) {
  JsonObject out;
  out.add("context", e.context).add("stride", e.stride).add("prefix", e.prefix.has_value());
  out.raw("prefix_id", e.prefix ? cat(*e.prefix) : "null");
  out.raw("begin_of_text", e.begin_of_text ? cat(*e.begin_of_text) : "null");
  return out.add("positions", "restart at 0 in each window")
      .add("by_document", e.by_document)
      .add("streams", e.streams)
      .add("windows", e.windows)
      .add("all_windows", e.all_windows)
      .add("unscored_tokens", e.unscored)
      .str();
}

std::string tokenizer_json(const TextEvaluation& e) {
  JsonObject out;
  out.raw("kind", e.tokenizer.empty() ? "null" : json_string(e.tokenizer));
  out.raw("fingerprint",
          e.tokenizer_fingerprint.empty() ? "null" : json_string(e.tokenizer_fingerprint));
  return out.add("vocabulary", e.vocabulary).str();
}

std::string data_json(const TextEvaluation& e) {
  return JsonObject()
      .add("split", e.split)
      .add("fraction", e.fraction)
      .raw("paths", strings(e.paths))
      .raw("layouts", strings(e.layouts))
      .raw("files", strings(e.files))
      .add("documents", e.documents)
      .add("byte_order_marks_removed", e.removed.byte_order_marks)
      .add("carriage_returns_removed", e.removed.carriage_returns)
      .str();
}

std::string documents_json(const std::vector<DocumentScore>& scores) {
  std::vector<std::string> rows;
  for (const DocumentScore& d : scores) {
    JsonObject row;
    row.add("document", d.document).add("name", d.name).add("L", d.nats).add("T", d.targets);
    add(row, "U", d.bytes);
    add(row, "words", d.words);
    rows.push_back(row.str());
  }
  return cat("[", join(rows, ","), "]");
}

}  // namespace

std::string text_evaluation_table(const TextEvaluation& e) {
  std::string out =
      cat("  data       ", data_line(e), "\n  protocol   ", protocol_line(e), "\n  tokenizer  ",
          tokenizer_line(e), "\n\n  L ", decimals(e.nats), " nats\n");
  row(out, "T tokens     ", {e.targets, "not comparable between vocabularies"},
      e.token_perplexity(), "perplexity");
  row(out, "W words      ", e.words, e.word_perplexity(), "perplexity");
  row(out, "C characters ", e.characters, e.bits_per_character(), "bits");
  row(out, "U bytes      ", e.bytes, e.bits_per_byte(), "bits");
  if (e.random) {
    out += cat("  estimate from ", e.random->batches, " random batches: ", decimals(e.random->loss),
               " nats a token\n");
  }
  document_rows(out, e);
  return out;
}

std::string text_evaluation_json(const TextEvaluation& e) {
  JsonObject out;
  out.add("L", e.nats).add("T", e.targets);
  add(out, "W", e.words.count);
  add(out, "C", e.characters.count);
  add(out, "U", e.bytes.count);
  out.add("token_perplexity", e.token_perplexity());
  add(out, "word_perplexity", e.word_perplexity());
  add(out, "bits_per_character", e.bits_per_character());
  add(out, "bits_per_byte", e.bits_per_byte());
  out.add("word_convention", e.word_convention)
      .add("words_counted", e.words.what)
      .add("characters_counted", e.characters.what)
      .add("bytes_counted", e.bytes.what)
      .raw("protocol", protocol_json(e))
      .raw("tokenizer", tokenizer_json(e))
      .raw("data", data_json(e));
  if (e.random) {
    out.raw("random_batches", JsonObject()
                                  .add("batches", e.random->batches)
                                  .add("targets", e.random->targets)
                                  .add("loss", e.random->loss)
                                  .str());
  }
  if (!e.per_document.empty()) out.raw("per_document", documents_json(e.per_document));
  return out.str();
}

}  // namespace fovea::train
