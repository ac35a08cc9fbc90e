#include "data/text_source.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::data {

namespace {

// Windows in `pairs` (input, target) pairs. Shifted: one window less than fits, so that the first
// can start anywhere in the first T bytes and more and every epoch has equally many; one if that is
// none.
std::int64_t windows(std::int64_t pairs, std::int64_t length, Cut cut) {
  if (cut == Cut::fixed) return (pairs + length - 1) / length;
  return std::max<std::int64_t>(1, pairs / length - 1);
}

}  // namespace

TextSource::TextSource(Corpus corpus, int seq_len, Cut cut, std::uint64_t seed)
    : corpus_(std::move(corpus)), seq_len_(seq_len), cut_(cut), seed_(seed) {
  const auto bytes = static_cast<std::int64_t>(corpus_.bytes.size());
  const std::int64_t needed = cut == Cut::shifted ? std::int64_t{seq_len} + 1 : 2;
  if (bytes < needed) {
    throw IoError(
        cat(corpus_.documents.empty() ? "text" : corpus_.documents[0].path, ": the ",
            name_of(corpus_.split), " split has ", bytes, " clean bytes in ",
            corpus_.documents.size(), " file(s), but a window needs ", needed, "; give more text",
            cut == Cut::shifted ? " or lower data.seq_len" : " or raise data.val_fraction"));
  }
  size_ = windows(bytes - 1, seq_len, cut);
}

std::int64_t TextSource::shift(std::int64_t epoch) const {
  if (cut_ == Cut::fixed) return 0;
  const std::int64_t room = static_cast<std::int64_t>(corpus_.bytes.size()) - 1 - size_ * seq_len_;
  return static_cast<std::int64_t>(
      NamedStream(seed_, "data.text.shift")
          .below(static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(room) + 1));
}

std::int64_t TextSource::target_tokens(std::int64_t i, std::int64_t /*epoch*/) const {
  const std::int64_t pairs = static_cast<std::int64_t>(corpus_.bytes.size()) - 1;
  return cut_ == Cut::shifted ? seq_len_ : std::min<std::int64_t>(seq_len_, pairs - i * seq_len_);
}

void TextSource::get(std::int64_t i, std::int64_t epoch, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  const auto* first =
      reinterpret_cast<const unsigned char*>(corpus_.bytes.data()) + shift(epoch) + i * seq_len_;
  const std::int64_t count = target_tokens(i, epoch);
  example.tokens.assign(first, first + count);
  example.targets.assign(first + 1, first + 1 + count);
}

std::string TextSource::summary() const {
  return cat(corpus_.summary(), ", ", size_, " windows of ", seq_len_);
}

}  // namespace fovea::data
