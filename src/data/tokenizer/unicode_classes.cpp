#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/unicode_classes.h"

#include <memory>
#include <string>

#include <pcre2.h>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

constexpr std::uint32_t kCodePoints = 0x40000;
constexpr std::uint32_t kSurrogates = 0xD800, kBehindSurrogates = 0xE000;

// Runs of one class; the group's number tells which. White_Space is \p{Z} and six controls. PCRE2's
// \s would also take U+180E, which lost the property in Unicode 6.3.
constexpr char kPattern[] = "(\\p{L}+)|(\\p{N}+)|([\\p{Z}\\x{9}-\\x{d}\\x{85}]+)";

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::unique_ptr<pcre2_code, Free> compile() {
  int error = 0;
  PCRE2_SIZE at = 0;
  std::unique_ptr<pcre2_code, Free> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern),
                                                       PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                                       &error, &at, nullptr));
  // A PCRE2 built without Unicode ends here.
  if (!code) throw Error(ExitCode::failed, cat("pcre2_compile failed: error ", error));
  // Without a compiler for this machine PCRE2 interprets, which gives the same classes later.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

UnicodeClasses::UnicodeClasses() : classes_(kCodePoints, CharClass::other) {
  std::string all;
  std::vector<std::uint32_t> code_points;  // which one begins at a byte of `all`
  for (std::uint32_t c = 0; c < kCodePoints; ++c) {
    if (c >= kSurrogates && c < kBehindSurrogates) continue;
    append_utf8(all, c);
    code_points.resize(all.size(), c);
  }
  const auto code = compile();
  const std::unique_ptr<pcre2_match_data, Free> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(all.data());
  const PCRE2_SIZE* groups = pcre2_get_ovector_pointer(match.get());
  PCRE2_SIZE from = 0;
  while (true) {
    const int found = pcre2_match(code.get(), subject, all.size(), from, PCRE2_NO_UTF_CHECK,
                                  match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 2) throw Error(ExitCode::failed, cat("pcre2_match failed: error ", found));
    // `found` is one more than the highest group that matched: the alternative.
    const auto which = static_cast<CharClass>(found - 1);
    for (PCRE2_SIZE at = groups[0]; at < groups[1]; ++at)
      classes_[code_points[at]] = which;
    from = groups[1];
  }
}

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return std::uint32_t{static_cast<unsigned char>(text[at + i])};
  };
  switch (utf8_length(text, at)) {
    case 1:
      return {byte(0), 1};
    case 2:
      return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    case 3:
      return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    case 4:
      return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                  (byte(3) & 0x3F),
              4};
    default:
      return {kInvalid, 1};
  }
}

void append_utf8(std::string& to, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace fovea::data
