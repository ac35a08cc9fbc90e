#include "data/tokenizer/bpe_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/tokenizer/bpe_json.h"
#include "data/tokenizer/byte_symbols.h"

namespace fovea::data {

namespace {

using Token = BpeVocabulary::Token;
constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::string_view kUnknown = "<unk>";

struct Merge {
  std::string_view left, right;
  std::size_t number;  // the line's or the list entry's, from 1
};

// Lines "A B" behind an optional "#version" line. The views are into `text`.
std::vector<Merge> parse_merges(const std::string& path, std::string_view text) {
  std::vector<Merge> merges;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && text.find_first_not_of("\r\n") == std::string_view::npos) break;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw IoError(
          cat(path, ": line ", number, ": ", quote(line, 40), " is not two tokens \"A B\""));
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1), number});
  }
  return merges;
}

// Makes a BpeVocabulary of tokens and merges spelled with byte symbols.
class Builder {
 public:
  // `merges_path` and `item` ("line", "merge") say where a merge stands.
  Builder(const std::string& path, const std::string& merges_path, std::string_view item)
      : merges_path_(merges_path), item_(item) {
    vocabulary.path = path;
    vocabulary.byte_tokens.fill(-1);
  }

  // `type`: special and added tokens are spelled as they are; others are ordinary or, if a
  // character of theirs is no symbol, foreign.
  void add_token(std::string_view spelling, Token type = Token::ordinary) {
    const bool as_is = type == Token::special || type == Token::added;
    const auto bytes = as_is ? std::nullopt : symbols_.bytes_of(spelling);
    const std::int32_t id = vocabulary.tokens.append(bytes ? *bytes : spelling);
    spellings_.append(spelling);
    spellings_.index(id);
    vocabulary.types.push_back(bytes || as_is ? type : Token::foreign);
    if (bytes && bytes->size() == 1)
      vocabulary.byte_tokens[static_cast<unsigned char>((*bytes)[0])] = id;
  }
  void add_bytes_in_order() {
    for (int i = 0; i < 256; ++i)
      add_token(symbols_.symbol_of(symbols_.byte_in_order(i)));
  }
  std::int32_t find(std::string_view spelling) const { return spellings_.find(spelling); }

  void add_merge(const Merge& merge) {
    const std::int32_t result = known(merge, cat(merge.left, merge.right));
    const auto rank = static_cast<std::uint32_t>(vocabulary.merge_results.size());
    if (!vocabulary.merges.add(known(merge, merge.left), known(merge, merge.right), {rank, result}))
      fail(merge, cat(quote(merge.left), " ", quote(merge.right), " is there twice"));
    vocabulary.merge_results.push_back(result);
  }

  // If the bytes have GPT-2's ids, the merges tell all others: 256 and on, in their order.
  void check_order(const std::vector<Merge>& merges) const {
    for (int i = 0; i < 256; ++i)
      if (vocabulary.byte_tokens[symbols_.byte_in_order(i)] != i) return;
    std::int32_t next = 256;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::int32_t result = vocabulary.merge_results[i];
      if (result > next) {
        fail(merges[i],
             cat("makes ", quote(vocabulary.tokens[result]), ", whose id in ", vocabulary.path,
                 " is ", result, ", but should be ", next, "; the two do not belong together"));
      }
      if (result == next) ++next;  // else an earlier merge made it
    }
  }

  [[noreturn]] void fail(const Merge& merge, std::string_view reason) const {
    throw IoError(cat(merges_path_, ": ", item_, " ", merge.number, ": ", reason));
  }

  BpeVocabulary vocabulary;

 private:
  std::int32_t known(const Merge& merge, std::string_view spelling) const {
    const std::int32_t id = find(spelling);
    if (id < 0) fail(merge, cat(quote(spelling), " is not in the vocabulary"));
    if (vocabulary.types[static_cast<std::size_t>(id)] != Token::ordinary)
      fail(merge, cat(quote(spelling), " has characters that stand for no byte"));
    return id;
  }

  std::string merges_path_;
  std::string_view item_;
  Pieces spellings_;
  ByteSymbols symbols_;
};

// Spellings of the kind "<...>" that no merge makes.
std::set<std::string_view> special_spellings(const std::vector<std::string>& spellings,
                                             const std::vector<Merge>& merges) {
  std::set<std::string_view> special;
  for (const std::string& spelling : spellings)
    if (spelling.size() > 2 && spelling.starts_with('<') && spelling.ends_with('>'))
      special.insert(spelling);
  for (const Merge& merge : merges)
    if (merge.left.starts_with('<')) special.erase(cat(merge.left, merge.right));
  return special;
}

}  // namespace

std::string read_tokenizer_file(const std::string& path) {
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  const InputFile file(path);
  if (file.size() > kMost) {
    throw IoError(cat(path, ": has ", file.size(), " bytes; a tokenizer has at most ", kMost));
  }
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

BpeVocabulary read_gpt2_files(const std::string& vocab_path, const std::string& merges_path) {
  std::string vocab_text = read_tokenizer_file(vocab_path);
  const std::vector<std::string> spellings = parse_vocab_json(vocab_path, vocab_text);
  std::string merges_text = read_tokenizer_file(merges_path);
  const std::vector<Merge> merges = parse_merges(merges_path, merges_text);
  const std::set<std::string_view> special = special_spellings(spellings, merges);
  Builder builder(vocab_path, merges_path, "line");
  for (const std::string& spelling : spellings)
    builder.add_token(spelling, special.contains(spelling) ? Token::special : Token::ordinary);
  for (const Merge& merge : merges)
    builder.add_merge(merge);
  builder.check_order(merges);
  if (special.contains(kUnknown)) builder.vocabulary.unknown = builder.find(kUnknown);
  builder.vocabulary.files = {{"vocab.json", std::move(vocab_text)},
                              {"merges.txt", std::move(merges_text)}};
  return std::move(builder.vocabulary);
}

BpeVocabulary read_merges_file(const std::string& path) {
  std::string text = read_tokenizer_file(path);
  Builder builder(path, path, "line");
  builder.add_bytes_in_order();
  for (const Merge& merge : parse_merges(path, text)) {
    const std::string result = cat(merge.left, merge.right);
    if (builder.find(result) < 0) builder.add_token(result);
    builder.add_merge(merge);
  }
  builder.add_token(kEndOfText, Token::special);
  builder.vocabulary.files = {{"merges.txt", std::move(text)}};
  return std::move(builder.vocabulary);
}

BpeVocabulary read_hub_file(const std::string& path) {
  std::string text = read_tokenizer_file(path);
  const HubBpe hub = parse_hub_json(path, text);
  std::vector<Token> types(hub.spellings.size(), Token::ordinary);
  for (const HubAddedToken& token : hub.added)
    types[static_cast<std::size_t>(token.id)] = token.special ? Token::special : Token::added;
  Builder builder(path, path, "merge");
  for (std::size_t id = 0; id < types.size(); ++id)
    builder.add_token(hub.spellings[id], types[id]);
  std::vector<Merge> merges;
  for (const auto& [left, right] : hub.merges)
    merges.push_back({left, right, merges.size() + 1});
  for (const Merge& merge : merges)
    builder.add_merge(merge);
  builder.check_order(merges);
  if (hub.unknown) {
    const std::int32_t id = builder.find(*hub.unknown);
    if (id < 0) throw IoError(cat(path, ": unk_token ", quote(*hub.unknown), " has no id"));
    builder.vocabulary.unknown = id;
  }
  if (hub.ignore_merges) builder.vocabulary.whole_piece = BpeVocabulary::WholePiece::is_token;
  builder.vocabulary.files = {{"tokenizer.json", std::move(text)}};
  return std::move(builder.vocabulary);
}

}  // namespace fovea::data
