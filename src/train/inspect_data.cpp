// Tokenizers, tokens and texts. See inspect_kinds.h.

#include "data/inspect_data.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/listops_files.h"
#include "data/raw_tokens.h"
#include "data/text_layout.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_tokenizer.h"
#include "train/inspect_kinds.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;

std::string head_of(const std::string& path, std::size_t most) {
  const InputFile file(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), most)), '\0');
  file.read_at(0, head.data(), head.size());
  return head;
}

std::string split_json(const data::DataSplitReport& r) {
  JsonObject out;
  out.add("name", r.name).add("path", r.path).add("format", r.format);
  if (r.tokens >= 0)
    out.add("tokens", r.tokens).add("vocab_size", r.vocab).add("fingerprint", r.fingerprint);
  if (r.has_counts) {
    out.add("documents", r.counts.documents)
        .add("lines", r.counts.lines)
        .add("words", r.counts.words)
        .add("characters", r.counts.characters)
        .add("bytes", r.counts.bytes)
        .add("invalid_bytes", r.counts.invalid_bytes);
  }
  return out.str();
}

// Names that token files have; see token_split.h.
bool is_token_name(const fs::path& path) {
  std::string stem = path.stem().string();
  std::string_view rest = stem;
  const auto is_one = [](std::string_view word) {
    return word == "tokens" || data::split_named(word).has_value();
  };
  const std::string_view last = data::take_last_component(rest);
  return is_one(stem) || is_one(last) || is_one(data::take_last_component(rest));
}

// Of a file without a header there is nothing but its ids to tell what it is.
void require_ids(const std::string& path) {
  const data::RawTokens file(path, 2);
  std::int32_t largest = 0;
  std::vector<std::int32_t> ids(std::size_t{1} << 16);
  for (std::int64_t at = 0; at < file.size();) {
    const std::int64_t count = std::min(static_cast<std::int64_t>(ids.size()), file.size() - at);
    file.read(at, count, ids.data());
    largest = std::max(largest, *std::max_element(ids.begin(), ids.begin() + count));
    at += count;
  }
  if (largest < file.usual_vocab()) return;
  throw IoError(cat(path,
                    ": is no .bin file that fovea knows: neither of llama2.c nor of llm.c, and "
                    "as token ids of uint16 it goes up to ",
                    largest, ", beyond GPT-2's ", file.usual_vocab() - 1,
                    " (files of other ids are told by names like train.bin)"));
}

// The first bytes as int32, which is what the formats of llama2.c and llm.c begin with.
std::array<std::int32_t, 7> integers_of(const std::string& path) {
  std::array<std::int32_t, 7> out{};
  const std::string head = head_of(path, sizeof out);
  std::memcpy(out.data(), head.data(), head.size());
  return out;
}

}  // namespace

bool is_tokenizer_text(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (name == "merges.txt" || name == "vocab.bpe" || name.ends_with(".tiktoken")) return true;
  const std::string head = head_of(path, 64);
  const std::string_view line = std::string_view(head).substr(0, head.find_first_of("\r\n"));
  return line.starts_with("#version") || line == data::CharTokenizer::kHeader ||
         (line == data::WordTokenizer::kEndOfLine && name == "vocab.txt");
}

Inspection inspect_tokenizer(const std::string& path) {
  const auto tokenizer = data::open_tokenizer(path);
  std::vector<std::string> names;
  for (const data::TokenizerFile& file : tokenizer->files())
    names.push_back(file.name);
  const auto special = [](const char* what, const std::optional<std::int32_t>& id) {
    return id ? cat(", ", what, " ", *id) : std::string();
  };
  return {"tokenizer",
          cat(path, ": tokenizer, ", tokenizer->kind(), ", ", tokenizer->vocab_size(),
              " ids, fingerprint ", tokenizer->fingerprint(),
              special("begin of text", tokenizer->begin_of_text()),
              special("end of text or line", tokenizer->end_of_text())),
          JsonObject()
              .add("kind", "tokenizer")
              .add("path", path)
              .add("tokenizer", tokenizer->kind())
              .add("vocab_size", tokenizer->vocab_size())
              .add("fingerprint", tokenizer->fingerprint())
              .str(),
          {}};
}

Inspection inspect_listops(const std::string& path) {
  const data::listops::Table table = data::listops::read_table(path);
  std::uint64_t longest = 0, before = 0;
  std::array<std::int64_t, data::listops::kLabels> labels{};
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    longest = std::max(longest, table.ends[i] - before);
    before = table.ends[i];
    ++labels.at(table.values[i]);
  }
  std::vector<std::string> counts;
  counts.reserve(labels.size());
  for (const std::int64_t count : labels)
    counts.push_back(cat(count));
  return {"listops",
          cat(path, ": ListOps, ", plural(table.size(), "example"), ", ",
              plural(static_cast<std::int64_t>(table.tokens.size()), "token"), ", at most ",
              longest, " in one; labels 0 to 9: ", join(counts, ", ")),
          JsonObject()
              .add("kind", "listops")
              .add("path", path)
              .add("examples", table.size())
              .add("tokens", table.tokens.size())
              .add("longest", longest)
              .raw("labels", cat("[", join(counts, ","), "]"))
              .str(),
          {}};
}

Inspection inspect_data_files(const std::string& path) {
  const std::vector<data::DataSplitReport> reports = data::inspect_data(path, 0);
  const bool texts = std::all_of(reports.begin(), reports.end(),
                                 [](const auto& report) { return report.format == "text"; });
  std::vector<std::string> splits;
  splits.reserve(reports.size());
  for (const data::DataSplitReport& report : reports)
    splits.push_back(split_json(report));
  return {texts ? "text" : "data",
          data::text_of(reports),
          JsonObject()
              .add("kind", texts ? "text" : "data")
              .add("path", path)
              .raw("splits", cat("[", join(splits, ","), "]"))
              .str(),
          {}};
}

Inspection inspect_bin(const std::string& path) {
  constexpr std::int32_t kMost = 1 << 20;
  const auto begin = integers_of(path);
  const bool llmc = begin[0] == 20240520 || begin[0] == 20240801;
  if (llmc && std::string_view(data::RawTokens(path, 2).format()) != "llm.c")
    throw IoError(cat(path, ": begins as llm.c's shards do, but is shorter than their header"));
  if (llmc || is_token_name(path)) return inspect_data_files(path);
  // Two ids of uint16 in one int32 are seldom so small, seven times never.
  const bool sizes = std::all_of(begin.begin(), begin.end(),
                                 [](std::int32_t n) { return n != 0 && n < kMost && n > -kMost; });
  constexpr std::int32_t kNewer = 0x616b3432;  // "ak42", llama2.c's later versions
  if (sizes || begin[0] == kNewer) return inspect_model(path);
  const bool named = fs::path(path).filename().string().starts_with("tok");
  if (named || (begin[0] > 0 && begin[0] < 1024)) {
    try {
      return inspect_tokenizer(path);
    } catch (const IoError&) {
      if (named) throw;
    }
  }
  require_ids(path);
  return inspect_data_files(path);
}

}  // namespace fovea::train
