#include "data/text_reader.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

// A literal with its zero bytes: the length is the array's.
template <std::size_t N>
constexpr std::string_view bytes(const char (&literal)[N]) {
  return {literal, N - 1};
}

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Signature {
  std::string_view bytes, what;
  std::size_t offset = 0;
};
constexpr Signature kNotText[] = {
    {bytes("BZh91AY&SY"), "bzip2-compressed; unpack it first (bunzip2)"},
    {bytes("\xfd\x37zXZ\x00"), "xz-compressed; unpack it first (unxz)"},
    {bytes("\x28\xb5\x2f\xfd"), "zstd-compressed; unpack it first (unzstd)"},
    {bytes("PK\x03\x04"), "a zip archive; unpack it first (unzip)"},
    {bytes("ustar"), "a tar archive; unpack it first (tar -x)", 257},
    {bytes("PAR1"), "a Parquet file; export it as JSON lines first"},
    {bytes("\xff\xfe\x00\x00"), "UTF-32 text; convert it first (iconv -f UTF-32 -t UTF-8)"},
    {bytes("\x00\x00\xfe\xff"), "UTF-32 text; convert it first (iconv -f UTF-32 -t UTF-8)"},
    {bytes("\xff\xfe"), "UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
    {bytes("\xfe\xff"), "UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
};

// How many bytes at the end may be the beginning of a character that goes on.
std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= 3 && bytes <= text.size(); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) {
      const std::size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
      return bytes < whole ? bytes : 0;
    }
  }
  return 0;
}

}  // namespace

ByteReader::ByteReader(const std::string& path) {
  if (is_gzip(path) || path.ends_with(".gz")) {
    packed_ = std::make_unique<GzipReader>(path);
  } else {
    plain_ = std::make_unique<InputFile>(path);
  }
}

std::size_t ByteReader::read(char* to, std::size_t bytes) {
  if (packed_) return packed_->read(to, bytes);
  const auto got = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, plain_->size() - at_));
  plain_->read_at(at_, to, got);
  at_ += got;
  return got;
}

void TextCleaner::add(std::string_view raw, std::string& clean, std::vector<std::size_t>* cut_at) {
  std::string joined;
  if (begins_) {
    head_ += raw;
    if (head_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(head_)) return;
    begins_ = false;
    joined = std::move(head_);
    raw = joined;
    if (raw.starts_with(kByteOrderMark)) {
      raw.remove_prefix(kByteOrderMark.size());
      ++removed_.byte_order_marks;
    }
  }
  if (raw.empty()) return;
  if (held_cr_) {
    if (raw[0] == '\n') {
      ++removed_.carriage_returns;
      if (cut_at != nullptr) cut_at->push_back(clean.size());
    } else {
      clean.push_back('\r');
    }
    held_cr_ = false;
  }
  for (std::size_t at = 0; at < raw.size();) {
    const std::size_t cr = raw.find('\r', at);
    if (cr == std::string_view::npos) {
      clean += raw.substr(at);
      return;
    }
    clean += raw.substr(at, cr - at);
    at = cr + 1;
    if (at == raw.size()) {
      held_cr_ = true;
    } else if (raw[at] == '\n') {
      ++removed_.carriage_returns;
      if (cut_at != nullptr) cut_at->push_back(clean.size());
    } else {
      clean.push_back('\r');
    }
  }
}

void TextCleaner::finish(std::string& clean) {
  clean += head_;
  if (held_cr_) clean.push_back('\r');
  head_.clear();
  held_cr_ = false;
  begins_ = true;
}

TextReader::TextReader(const std::string& path) : path_(path), bytes_(path) {}

bool TextReader::read(std::string& chunk) {
  chunk.clear();
  cut_at_.clear();
  while (!ended_ && chunk.empty()) {
    raw_.resize(kChunk);
    raw_.resize(bytes_.read(raw_.data(), kChunk));
    if (raw_.empty()) {
      ended_ = true;
      judge();
      cleaner_.finish(chunk);
    } else {
      examine(raw_);
      cleaner_.add(raw_, chunk, &cut_at_);
    }
  }
  return !chunk.empty();
}

void TextReader::examine(std::string_view raw) {
  if (read_ == 0) {
    for (const Signature& s : kNotText) {
      if (raw.substr(std::min(s.offset, raw.size())).starts_with(s.bytes))
        throw IoError(cat(path_, ": is ", s.what));
    }
  }
  if (zeros_ == 0) {
    const std::size_t zero = raw.find('\0');
    first_zero_ = zero == std::string_view::npos ? 0 : read_ + zero;
  }
  zeros_ += static_cast<std::uint64_t>(std::count(raw.begin(), raw.end(), '\0'));
  if (is_utf8_) {
    undecided_ += raw;
    const std::size_t whole = undecided_.size() - incomplete_tail(undecided_);
    is_utf8_ = data::is_utf8(std::string_view(undecided_).substr(0, whole));
    undecided_.erase(0, whole);
  }
  read_ += raw.size();
}

void TextReader::judge() const {
  if (zeros_ == 0) return;
  if (zeros_ > read_ / 4 || !is_utf8_ || !undecided_.empty()) {
    throw IoError(cat(path_, ": is not text (", zeros_, " zero bytes, the first at byte ",
                      first_zero_, "); give text files only"));
  }
}

}  // namespace fovea::data
