#include "data/eval_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

std::optional<std::int32_t> prefix_of(const EvalText& text, Tristate choice) {
  if (choice == Tristate::no) return std::nullopt;
  const std::optional<std::int32_t> end =
      text.tokenizer == nullptr ? std::nullopt : text.tokenizer->end_of_text();
  if (choice == Tristate::automatic) return text.marks.begin ? std::nullopt : end;
  if (!end) {
    throw ConfigError(
        cat("eval.prefix is true, but ",
            text.tokenizer == nullptr ? std::string("the data's tokenizer is unknown")
                                      : cat("tokenizer ", text.tokenizer->kind()),
            text.tokenizer == nullptr ? "; give data.tokenizer" : " has no end-of-text token"));
  }
  return end;
}

EvalWindows windows_of(const std::vector<std::int64_t>& lengths, const EvalProtocol& protocol,
                       bool prefix) {
  const std::int64_t stride = protocol.stride == 0 ? protocol.context : protocol.stride;
  return {lengths, {.context = protocol.context, .stride = stride, .prefix = prefix}};
}

std::int64_t documents_in(const EvalPart& part) {
  const std::size_t ends = part.split.tokens->offsets().size();
  return ends == 0 ? 0 : static_cast<std::int64_t>(ends) - 1;
}

}  // namespace

bool EvalSource::splits_documents(const EvalText& text, const EvalProtocol& protocol, Pack pack) {
  if (protocol.documents == Tristate::no) return false;
  bool wanted = protocol.documents == Tristate::yes || pack == Pack::documents;
  for (const EvalPart& part : text.parts)
    wanted = wanted || part.layout == "split folders";
  for (const EvalPart& part : text.parts) {
    if (!wanted || documents_in(part) > 0) continue;
    throw ConfigError(
        cat(pack == Pack::documents ? "data.pack is documents" : "eval.documents is true", ", but ",
            part.split.path,
            " does not tell where documents begin; prepare the text with fovea data "
            "prepare"));
  }
  return wanted;
}

std::vector<EvalSource::Stream> EvalSource::streams_of(const EvalText& text, bool by_document) {
  std::vector<Stream> out;
  std::int64_t document = 0;
  for (std::size_t i = 0; i < text.parts.size(); ++i) {
    const TokenArray& tokens = *text.parts[i].split.tokens;
    const auto offsets = tokens.offsets();
    if (!by_document) out.push_back({i, 0, tokens.size(), document});
    for (std::size_t d = 0; by_document && d + 1 < offsets.size(); ++d) {
      out.push_back({i, static_cast<std::int64_t>(offsets[d]),
                     static_cast<std::int64_t>(offsets[d + 1]),
                     document + static_cast<std::int64_t>(d)});
    }
    document += documents_in(text.parts[i]);
  }
  return out;
}

EvalSource::EvalSource(EvalText text, EvalProtocol protocol, Pack pack)
    : text_(std::move(text)),
      by_document_(splits_documents(text_, protocol, pack)),
      streams_(streams_of(text_, by_document_)),
      prefix_(prefix_of(text_, protocol.prefix)),
      windows_({}, {.context = 1, .stride = 1}) {
  std::vector<std::int64_t> lengths;
  for (const Stream& stream : streams_)
    lengths.push_back(stream.end - stream.begin);
  windows_ = windows_of(lengths, protocol, prefix_.has_value());
  for (const EvalPart& part : text_.parts)
    documents_ += documents_in(part);
  if (windows_.targets() == 0) {
    const std::int64_t tokens = windows_.unscored();
    throw IoError(cat(text_.parts.front().split.path, ": the ", name_of(text_.split),
                      " split has nothing to score: ", tokens, tokens == 1 ? " token" : " tokens",
                      prefix_ ? "" : " and no prefix", "; give more text"));
  }
  measure_pieces();
}

void EvalSource::measure_pieces() {
  if (text_.tokenizer == nullptr || !text_.counts()) return;
  const Tokenizer& tokenizer = *text_.tokenizer;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool mark = text_.marks.begin == id || text_.marks.end == id;
    pieces_.push_back(mark ? std::string() : tokenizer.piece(id));
  }
  ScoredText all;
  for (std::size_t part = 0; part < text_.parts.size(); ++part)
    all.bytes += measured(part, 0, text_.parts[part].split.tokens->size()).bytes;
  exact_ = all.bytes == text_.counts()->bytes;
}

ScoredText EvalSource::measured(std::size_t part, std::int64_t begin, std::int64_t end) const {
  constexpr std::int64_t kMost = 1 << 16, kAround = 4;  // a character has at most 4 bytes
  const TokenArray& tokens = *text_.parts[part].split.tokens;
  const auto offsets = tokens.offsets();
  ScoredText sum;
  std::vector<std::int32_t> ids;
  std::string text;
  for (std::int64_t stop; begin < end; begin = stop) {
    // No character goes on in another document.
    const auto next =
        std::upper_bound(offsets.begin(), offsets.end(), static_cast<std::uint64_t>(begin));
    const std::int64_t document_begin = static_cast<std::int64_t>(*(next - 1)),
                       document_end = static_cast<std::int64_t>(*next);
    stop = std::min({end, begin + kMost, document_end});
    const std::int64_t from = std::max(document_begin, begin - kAround),
                       to = std::min(document_end, stop + kAround);
    ids.resize(static_cast<std::size_t>(to - from));
    tokens.read(from, to - from, ids.data());
    text.clear();
    std::size_t first = 0, last = 0;  // bytes of the tokens that are meant
    for (std::int64_t t = from; t < to; ++t) {
      if (t == begin) first = text.size();
      const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(t - from)]);
      if (id < pieces_.size()) text += pieces_[id];  // get() refuses others
      if (t + 1 == stop) last = text.size();
    }
    sum.bytes += static_cast<std::int64_t>(last - first);
    for (std::size_t at = 0; at < last;
         at += static_cast<std::size_t>(std::max(1, utf8_length(text, at))))
      sum.characters += at >= first;
  }
  return sum;
}

// Tokens y[from] .. y[first + inputs] of the window's stream.
std::vector<std::int32_t> EvalSource::sequence(const EvalWindows::Window& window,
                                               std::int64_t from) const {
  const Stream& stream = streams_[static_cast<std::size_t>(window.stream)];
  const TokenSplit& split = text_.parts[stream.part].split;
  const std::int64_t end = window.first + window.inputs + 1;
  std::vector<std::int32_t> out(static_cast<std::size_t>(end - from));
  const std::int64_t shift = prefix_ ? 1 : 0, begin = std::max(from, shift);
  if (from < begin) out[0] = *prefix_;
  std::int32_t* const read = out.data() + (begin - from);
  split.tokens->read(stream.begin + begin - shift, end - begin, read);
  for (std::int64_t t = 0; t < end - begin; ++t) {
    if (read[t] >= 0 && read[t] < split.vocab) continue;
    throw IoError(cat(split.path, ": token ", stream.begin + begin - shift + t, " is ", read[t],
                      ", but must be below ", split.vocab,
                      "; is data.vocab_size or data.tokenizer another one's?"));
  }
  return out;
}

void EvalSource::get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const {
  const EvalWindows::Window window = windows_.at(i);
  example.tokens = sequence(window, window.first);
  example.targets.assign(example.tokens.begin() + 1, example.tokens.end());
  std::fill_n(example.targets.begin(), window.skipped, kIgnored);
  example.tokens.pop_back();
}

std::int64_t EvalSource::target_tokens(std::int64_t i, std::int64_t /*epoch*/) const {
  return windows_.at(i).scored();
}

std::string EvalSource::summary() const {
  std::vector<std::string> parts;
  for (const EvalPart& part : text_.parts)
    parts.push_back(part.split.summary);
  return cat(join(parts, "; "), ", ", size(), " windows of ", seq_len());
}

std::string EvalSource::fingerprint() const {
  if (text_.parts.size() == 1) return text_.parts.front().split.fingerprint;
  std::string all = "joined";
  for (const EvalPart& part : text_.parts)
    all += part.split.fingerprint;
  return hash_hex(xxh3_64(all));
}

std::optional<ScoredText> EvalSource::scored(std::int64_t windows) const {
  const std::optional<TextCounts> counts = text_.counts();
  if (!counts || pieces_.empty()) return std::nullopt;
  if (windows < size() && !exact_) return std::nullopt;
  const std::int64_t shift = prefix_ ? 1 : 0;
  ScoredText sum;
  if (windows < size()) {
    for (std::int64_t w = 0; w < windows; ++w) {
      const EvalWindows::Window at = windows_.at(w);
      const Stream& stream = streams_[static_cast<std::size_t>(at.stream)];
      const std::int64_t from = stream.begin + at.first + at.skipped + 1 - shift;
      const ScoredText more = measured(stream.part, from, from + at.scored());
      sum.bytes += more.bytes;
      sum.characters += more.characters;
    }
    return sum;
  }
  sum = {counts->bytes, counts->characters};
  for (const Stream& stream : streams_) {
    if (prefix_ || stream.begin == stream.end) continue;
    const ScoredText first = measured(stream.part, stream.begin, stream.begin + 1);
    sum.bytes -= first.bytes;
    sum.characters -= first.characters;
  }
  return sum;
}

void EvalSource::targets_of(std::int64_t window, std::vector<Target>& to) const {
  const EvalWindows::Window at = windows_.at(window);
  const Stream& stream = streams_[static_cast<std::size_t>(at.stream)];
  const auto offsets = text_.parts[stream.part].split.tokens->offsets();
  const std::vector<std::int32_t> ids = sequence(at, at.first + at.skipped + 1);
  std::int64_t first = 0;  // document of the part
  for (std::size_t before = 0; before < stream.part; ++before)
    first += documents_in(text_.parts[before]);
  auto place =
      static_cast<std::uint64_t>(stream.begin + at.first + at.skipped + 1 - (prefix_ ? 1 : 0));
  for (const std::int32_t id : ids) {
    if (offsets.empty()) {
      to.push_back({0, static_cast<std::int64_t>(place++), id});
      continue;
    }
    const auto end = std::upper_bound(offsets.begin(), offsets.end(), place);
    to.push_back(
        {first + (end - offsets.begin()) - 1, static_cast<std::int64_t>(place - *(end - 1)), id});
    ++place;
  }
}

std::optional<TextCounts> EvalSource::document_counts(std::int64_t document) const {
  std::size_t part = 0;
  for (; part < text_.parts.size() && document >= documents_in(text_.parts[part]); ++part)
    document -= documents_in(text_.parts[part]);
  if (part == text_.parts.size()) return std::nullopt;
  const std::vector<TextCounts>& counted = text_.parts[part].documents;
  const auto d = static_cast<std::size_t>(document);
  if (pieces_.empty() || (d >= counted.size() && !exact_)) return std::nullopt;
  const auto offsets = text_.parts[part].split.tokens->offsets();
  const auto begin = static_cast<std::int64_t>(offsets[d]),
             end = static_cast<std::int64_t>(offsets[d + 1]);
  TextCounts out;
  if (d < counted.size()) {
    out = counted[d];
  } else {
    const ScoredText text = measured(part, begin, end);
    out.documents = 1;
    out.bytes = text.bytes;
    out.characters = text.characters;
  }
  if (!prefix_ && begin < end && (by_document_ || begin == 0)) {
    const ScoredText first = measured(part, begin, begin + 1);
    out.bytes -= first.bytes;
    out.characters -= first.characters;
  }
  return out;
}

}  // namespace fovea::data
