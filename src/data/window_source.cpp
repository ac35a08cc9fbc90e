#include "data/window_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::data {

namespace {

// Windows in `pairs` (input, target) pairs. Shifted: one window less than fits, so that the first
// can start anywhere in the first T tokens and more and every epoch has equally many; one if that
// is none; all where whole windows were laid out one behind the other, as if they were examples.
std::int64_t windows(std::int64_t pairs, std::int64_t length, Cut cut) {
  if (cut == Cut::fixed || pairs % length == 0) return (pairs + length - 1) / length;
  return std::max<std::int64_t>(1, pairs / length - 1);
}

}  // namespace

WindowSource::WindowSource(TokenSplit split, int seq_len, Cut cut, Pack pack, std::uint64_t seed)
    : split_(std::move(split)), seq_len_(seq_len), cut_(cut), pack_(pack), seed_(seed) {
  const std::int64_t tokens = split_.tokens->size();
  const std::int64_t needed = cut == Cut::shifted ? std::int64_t{seq_len} + 1 : 2;
  if (tokens < needed) {
    throw IoError(
        cat(split_.path, ": the ", name_of(split_.split), " split has ", tokens,
            " tokens, but a window needs ", needed, "; give more text",
            cut == Cut::shifted ? " or lower data.seq_len" : " or raise data.val_fraction"));
  }
  if (pack == Pack::documents && split_.tokens->offsets().empty()) {
    throw ConfigError(cat("data.pack is documents, but ", split_.path,
                          " does not tell where documents begin; use data.pack: plain, or prepare "
                          "the text with fovea data prepare"));
  }
  size_ = windows(tokens - 1, seq_len, cut);
}

WindowSource::Window WindowSource::window(std::int64_t i, std::int64_t epoch) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  const std::int64_t pairs = split_.tokens->size() - 1, first = i * seq_len_;
  if (cut_ == Cut::fixed) return {first, std::min<std::int64_t>(seq_len_, pairs - first)};
  const std::int64_t room = pairs - size_ * seq_len_;
  const auto shift = static_cast<std::int64_t>(
      NamedStream(seed_, "data.text.shift")
          .below(static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(room) + 1));
  return {shift + first, seq_len_};
}

std::int64_t WindowSource::target_tokens(std::int64_t i, std::int64_t epoch) const {
  const auto [first, count] = window(i, epoch);
  if (pack_ == Pack::plain) return count;
  // Every place where a document begins is the target of another one's last token.
  const auto offsets = split_.tokens->offsets();
  std::int64_t scored = count;
  auto at = static_cast<std::uint64_t>(first);
  while (true) {
    const auto next = std::upper_bound(offsets.begin(), offsets.end(), at);
    if (next == offsets.end() || *next > static_cast<std::uint64_t>(first + count)) return scored;
    at = *next;
    --scored;
  }
}

void WindowSource::get(std::int64_t i, std::int64_t epoch, Example& example) const {
  const auto [first, count] = window(i, epoch);
  const auto n = static_cast<std::size_t>(count);
  example.tokens.resize(n + 1);
  split_.tokens->read(first, count + 1, example.tokens.data());
  for (std::size_t t = 0; t <= n; ++t) {
    const std::int64_t id = example.tokens[t];
    if (id < 0 || id >= split_.vocab) {
      throw IoError(cat(split_.path, ": token ", first + static_cast<std::int64_t>(t), " is ", id,
                        ", but must be below ", split_.vocab,
                        "; is data.vocab_size or data.tokenizer another one's?"));
    }
  }
  example.targets.assign(example.tokens.begin() + 1, example.tokens.end());
  example.tokens.pop_back();
  if (pack_ == Pack::documents) cut_at_documents(first, example);
}

void WindowSource::cut_at_documents(std::int64_t first, Example& example) const {
  const auto offsets = split_.tokens->offsets();
  const std::size_t n = example.tokens.size();
  example.segments.resize(n);
  example.positions.resize(n);
  auto end = std::upper_bound(offsets.begin(), offsets.end(), static_cast<std::uint64_t>(first));
  std::int32_t segment = 0, position = 0;
  for (std::size_t t = 0; t < n; ++t) {
    example.segments[t] = segment;
    example.positions[t] = position++;
    const std::uint64_t next = static_cast<std::uint64_t>(first) + t + 1;
    if (*end != next) continue;
    example.targets[t] = kIgnored;
    ++segment;
    position = 0;
    end = std::upper_bound(end, offsets.end(), next);  // past empty documents
  }
}

std::string WindowSource::summary() const {
  return cat(split_.summary, ", ", size_, " windows of ", seq_len_,
             pack_ == Pack::documents ? ", cut at documents" : "");
}

std::optional<TextCounts> WindowSource::counts() const {
  if (!split_.has_counts) return std::nullopt;
  return split_.counts;
}

}  // namespace fovea::data
