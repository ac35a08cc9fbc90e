#include "data/tokenizer/llama2c_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"
#include "data/tokenizer/unicode_classes.h"

namespace fovea::data {

namespace {

constexpr std::int32_t kUnknown = 0, kBegin = 1, kEnd = 2;
constexpr std::int32_t kFirstPiece = 3;
constexpr std::int32_t kLongestPiece =
    1024;  // every cut of a piece is looked at; real ones have 30

// The byte that "<0x0A>" stands for.
std::optional<unsigned char> byte_of(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>')
    return std::nullopt;
  unsigned value = 0;
  const char* const end = spelling.data() + 5;
  const auto [at, error] = std::from_chars(spelling.data() + 3, end, value, 16);
  if (error != std::errc() || at != end) return std::nullopt;
  return static_cast<unsigned char>(value);
}

// A space that does not begin a piece or follow another space.
bool has_inner_space(std::string_view piece) {
  for (std::size_t i = 1; i < piece.size(); ++i)
    if (piece[i] == ' ' && piece[i - 1] != ' ') return true;
  return false;
}

}  // namespace

Llama2cTokenizer Llama2cTokenizer::read(const std::string& path, std::string bytes) {
  Llama2cTokenizer tokenizer;
  tokenizer.bytes_ = std::move(bytes);
  tokenizer.parse(path);
  tokenizer.add_merges();
  return tokenizer;
}

void Llama2cTokenizer::parse(const std::string& path) {
  const auto fail = [&](std::string_view reason) {
    throw IoError(cat(path, ": is no llama2.c tokenizer: ", reason));
  };
  std::size_t at = 0;
  const auto take = [&](void* to) {
    if (bytes_.size() - at < 4) fail(cat("it is cut off at byte ", bytes_.size()));
    std::memcpy(to, bytes_.data() + at, 4);
    at += 4;
  };
  std::int32_t longest = 0;
  take(&longest);
  if (longest < 1 || longest > kLongestPiece)
    fail(cat("its longest piece has ", longest, " bytes, but 1 to ", kLongestPiece,
             " are possible"));
  while (at < bytes_.size()) {
    float score = 0;
    std::int32_t length = 0;
    take(&score);
    take(&length);
    const std::int32_t id = pieces_.size();
    if (!std::isfinite(score)) fail(cat("the score of piece ", id, " is not finite"));
    // llama2.c itself writes control pieces longer than what its header says is the longest.
    if (length < 0 || length > kLongestPiece)
      fail(cat("piece ", id, " at byte ", at - 8, " has ", length, " bytes"));
    if (bytes_.size() - at < static_cast<std::size_t>(length))
      fail(cat("piece ", id, " ends behind byte ", bytes_.size(), ", the last"));
    const std::string_view spelling =
        std::string_view(bytes_).substr(at, static_cast<std::size_t>(length));
    at += spelling.size();
    pieces_.append(spelling);
    scores_.push_back(score);
    const auto byte = byte_of(spelling);
    const bool control = id == kBegin || id == kEnd;
    texts_.push_back(control ? ""
                     : byte  ? std::string(1, static_cast<char>(*byte))
                             : std::string(spelling));
    if (byte && byte_tokens_[*byte] < 0) byte_tokens_[*byte] = id;
    if (id < kFirstPiece || byte || spelling.empty()) continue;
    pieces_.index(id);
    words_apart_ = words_apart_ && !has_inner_space(spelling);
  }
  if (pieces_.size() < kFirstPiece) fail(cat("it has ", pieces_.size(), " pieces"));
}

void Llama2cTokenizer::add_merges() {
  std::vector<float> descending = scores_;
  std::sort(descending.begin(), descending.end(), std::greater<>());
  descending.erase(std::unique(descending.begin(), descending.end()), descending.end());
  for (std::int32_t id = kFirstPiece; id < pieces_.size(); ++id) {
    const std::string_view spelling = pieces_[id];
    if (pieces_.find(spelling) != id) continue;  // a byte, or a piece that is there twice
    const auto place = std::lower_bound(descending.begin(), descending.end(),
                                        scores_[static_cast<std::size_t>(id)], std::greater<>());
    const auto rank = static_cast<std::uint32_t>(place - descending.begin());
    for (std::size_t cut = 1; cut < spelling.size(); ++cut) {
      const std::int32_t left = pieces_.find(spelling.substr(0, cut));
      const std::int32_t right = pieces_.find(spelling.substr(cut));
      if (left >= 0 && right >= 0) merges_.add(left, right, {rank, id});
    }
  }
}

std::string Llama2cTokenizer::fingerprint() const {
  Xxh3 hash;
  hash.update(kind());
  hash.update(bytes_);
  return hash.hex();
}

void Llama2cTokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  const std::string spaced = cat(" ", text);
  if (!words_apart_) return encode_part(spaced, ids);
  // No piece reaches over the end of a word, so words are independent, and short.
  for (std::size_t at = 0; at < spaced.size();) {
    const std::size_t word = spaced.find_first_not_of(' ', at);
    const std::size_t end = std::min(spaced.find(' ', word), spaced.size());
    encode_part(std::string_view(spaced).substr(at, end - at), ids);
    at = end;
  }
}

void Llama2cTokenizer::encode_part(std::string_view part, std::vector<std::int32_t>& ids) const {
  const std::size_t begin = ids.size();
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t bytes = character_at(part, at).bytes;
    const std::string_view character = part.substr(at, bytes);
    const std::int32_t id = pieces_.find(character);
    if (id >= 0) {
      ids.push_back(id);
    } else {
      for (const char c : character) {
        const std::int32_t byte = byte_tokens_[static_cast<unsigned char>(c)];
        ids.push_back(byte < 0 ? kUnknown : byte);
      }
    }
    at += bytes;
  }
  ids.resize(begin + merges_.apply(std::span(ids).subspan(begin)));
}

std::string Llama2cTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  bool begins = true;
  for (const std::int32_t id : ids) {
    check_id(id);
    std::string_view part = texts_[static_cast<std::size_t>(id)];
    if (begins && part.starts_with(' ')) part.remove_prefix(1);
    begins = id == kBegin;
    text += part;
  }
  return text;
}

std::string Llama2cTokenizer::piece(std::int32_t id) const {
  check_id(id);
  return texts_[static_cast<std::size_t>(id)];
}

}  // namespace fovea::data
