// The tiktoken layout: bytes and ranks instead of merges. See bpe_files.h.

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/bpe_files.h"

namespace fovea::data {

namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
// Every way to cut a token in two is looked at, so a token of a megabyte would be a trap. Real ones
// have at most 128 bytes.
constexpr std::size_t kLongestToken = 1024;

struct Encoding {
  std::size_t ranks;
  std::string_view name;
};
constexpr Encoding kOtherSplitters[] = {
    {100256, "cl100k_base"}, {199998, "o200k_base"}, {128000, "Llama 3"}};

struct Rank {
  std::string bytes;
  std::uint64_t rank = 0;
  std::size_t line = 0;
};

Rank parse_line(const std::string& path, std::string_view line, std::size_t number) {
  const auto fail = [&](std::string_view reason) {
    throw IoError(cat(path, ": line ", number, ": ", quote(line, 40), " ", reason));
  };
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) fail("is not \"base64 rank\"");
  const auto bytes = base64_decode(line.substr(0, space));
  if (!bytes || bytes->empty()) fail("does not begin with base64");
  if (bytes->size() > kLongestToken) fail(cat("is a token of more than ", kLongestToken, " bytes"));
  Rank rank{*bytes, 0, number};
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank.rank);
  if (error != std::errc() || stop != end) fail("does not end with a rank");
  return rank;
}

std::vector<Rank> parse(const std::string& path, std::string_view text) {
  std::vector<Rank> ranks;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && text.find_first_not_of("\r\n") == std::string_view::npos) break;
    ranks.push_back(parse_line(path, line, number));
  }
  if (ranks.empty()) throw IoError(cat(path, ": has no ranks"));
  return ranks;
}

// Ascending, each once, at most one left out. Returns the one left out, or the next.
std::size_t free_rank(const std::string& path, const std::vector<Rank>& sorted) {
  std::size_t free = sorted.size();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::size_t expected = i + (i >= free ? 1 : 0);
    if (sorted[i].rank == expected) continue;
    if (i > 0 && sorted[i].rank == sorted[i - 1].rank) {
      throw IoError(cat(path, ": line ", sorted[i].line, ": rank ", sorted[i].rank,
                        " is also in line ", sorted[i - 1].line));
    }
    if (sorted[i].rank != expected + 1 || free < i) {
      throw IoError(cat(path, ": no token has rank ", expected, "; only one may be left out"));
    }
    free = i;
  }
  return free;
}

void add_token(BpeVocabulary& vocabulary, std::string_view bytes, BpeVocabulary::Token type) {
  vocabulary.tokens.append(bytes);
  vocabulary.types.push_back(type);
}

}  // namespace

BpeVocabulary read_tiktoken_file(const std::string& path) {
  std::string text = read_tokenizer_file(path);
  std::vector<Rank> ranks = parse(path, text);
  for (const Encoding& encoding : kOtherSplitters) {
    if (ranks.size() == encoding.ranks) {
      throw IoError(cat(path, ": has ", ranks.size(), " ranks, as ", encoding.name,
                        " has, whose splitter is not supported; r50k_base and p50k_base are"));
    }
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const Rank& a, const Rank& b) { return a.rank < b.rank; });
  const std::size_t free = free_rank(path, ranks);
  BpeVocabulary vocabulary;
  vocabulary.path = path;
  vocabulary.byte_tokens.fill(-1);
  vocabulary.whole_piece = BpeVocabulary::WholePiece::is_token;
  for (const Rank& rank : ranks) {
    if (static_cast<std::size_t>(vocabulary.tokens.size()) == free)
      add_token(vocabulary, kEndOfText, BpeVocabulary::Token::special);
    const std::int32_t id = vocabulary.tokens.size();
    if (vocabulary.tokens.find(rank.bytes) >= 0) {
      throw IoError(cat(path, ": line ", rank.line, ": ", quote(rank.bytes), " has the rank ",
                        vocabulary.tokens.find(rank.bytes), " already"));
    }
    add_token(vocabulary, rank.bytes, BpeVocabulary::Token::ordinary);
    vocabulary.tokens.index(id);
    if (rank.bytes.size() == 1)
      vocabulary.byte_tokens[static_cast<unsigned char>(rank.bytes[0])] = id;
  }
  if (free == ranks.size()) add_token(vocabulary, kEndOfText, BpeVocabulary::Token::special);
  for (const Rank& rank : ranks) {
    if (rank.bytes.size() < 2) continue;
    const std::string_view bytes = rank.bytes;
    const auto result = static_cast<std::int32_t>(rank.rank);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::int32_t left = vocabulary.tokens.find(bytes.substr(0, cut));
      const std::int32_t right = vocabulary.tokens.find(bytes.substr(cut));
      if (left >= 0 && right >= 0)
        vocabulary.merges.add(left, right, {static_cast<std::uint32_t>(rank.rank), result});
    }
    vocabulary.merge_results.push_back(result);
  }
  vocabulary.files = {{"ranks.tiktoken", std::move(text)}};
  return vocabulary;
}

}  // namespace fovea::data
