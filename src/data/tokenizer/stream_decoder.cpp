#include "data/tokenizer/stream_decoder.h"

#include <algorithm>
#include <utility>

namespace fovea::data {

namespace {

// Bytes at the end of `text` that begin a UTF-8 sequence and do not finish it.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return bytes < length ? bytes : 0;
  }
  return 0;
}

// The longest end of `text` with which `stop` begins.
std::size_t overlap(std::string_view text, std::string_view stop) {
  std::size_t bytes = std::min(text.size(), stop.size());
  while (bytes > 0 && !text.ends_with(stop.substr(0, bytes)))
    --bytes;
  return bytes;
}

}  // namespace

std::string StreamDecoder::add(std::span<const std::int32_t> ids) {
  if (ids.empty()) return {};
  const std::size_t before = tokenizer_.decode(last_).size();
  last_.insert(last_.end(), ids.begin(), ids.end());
  std::string text = tokenizer_.decode(last_).substr(before);
  last_ = {ids.back()};
  return text;
}

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopText::add(std::string_view text) {
  if (stopped_) return {};
  for (const char c : text) {
    held_ += c;
    std::size_t longest = 0;
    for (const std::string& stop : stops_)
      if (held_.ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest == 0) continue;
    stopped_ = true;
    held_.resize(held_.size() - longest);
    return finish();
  }
  std::size_t keep = unfinished_bytes(held_);
  for (const std::string& stop : stops_)
    keep = std::max(keep, overlap(held_, stop));
  const std::size_t certain = held_.size() - keep;
  // Holding back a stop text may leave the beginning of a character before it.
  keep += unfinished_bytes(std::string_view(held_).substr(0, certain));
  std::string rest = held_.substr(held_.size() - keep);
  held_.resize(held_.size() - keep);
  return std::exchange(held_, std::move(rest));
}

std::string StopText::finish() {
  return std::exchange(held_, {});
}

}  // namespace fovea::data
