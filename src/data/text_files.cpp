#include "data/text_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;
using std::string_view_literals::operator""sv;

[[noreturn]] void fail(const fs::path& path, const std::error_code& code, std::string_view what) {
  throw IoError(cat(path.string(), ": ", what, ": ", code.message()));
}

// `entered` holds the real paths of the folders seen so far: a link back to one of them is a loop.
void walk(const fs::path& folder, const std::string& prefix, std::set<fs::path>& entered,
          std::vector<std::string>& files) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  if (code) fail(folder, code, "cannot be opened as a folder");
  if (!entered.insert(real).second) return;
  std::vector<std::string> names;
  fs::directory_iterator at(folder, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code)) {
    names.push_back(at->path().filename().string());
  }
  if (code) fail(folder, code, "cannot be listed");
  std::sort(names.begin(), names.end());  // which of two links to a folder is entered must not vary
  for (const std::string& name : names) {
    if (name[0] == '.') continue;
    const fs::file_status status = fs::status(folder / name, code);
    if (code) fail(folder / name, code, "cannot be examined");
    if (fs::is_directory(status)) walk(folder / name, cat(prefix, name, "/"), entered, files);
    if (fs::is_regular_file(status)) files.push_back(prefix + name);
  }
}

struct Signature {
  std::string_view bytes, what;
};
constexpr Signature kNotText[] = {
    {"\x1f\x8b"sv, "gzip-compressed; unpack it first (gunzip)"},
    {"BZh91AY&SY"sv, "bzip2-compressed; unpack it first (bunzip2)"},
    {"\xfd\x37zXZ\x00"sv, "xz-compressed; unpack it first (unxz)"},
    {"\x28\xb5\x2f\xfd"sv, "zstd-compressed; unpack it first (unzstd)"},
    {"PK\x03\x04"sv, "a zip archive; unpack it first (unzip)"},
    {"\xff\xfe\x00\x00"sv, "UTF-32 text; convert it first (iconv -f UTF-32 -t UTF-8)"},
    {"\x00\x00\xfe\xff"sv, "UTF-32 text; convert it first (iconv -f UTF-32 -t UTF-8)"},
    {"\xff\xfe"sv, "UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
    {"\xfe\xff"sv, "UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8)"},
};

// Legacy 8-bit encodings have no NUL, and UTF-8 text may have a few; binary files have NULs and are
// not UTF-8, or are mostly NULs.
void refuse_what_is_not_text(const std::string& path, std::string_view text) {
  if (path.ends_with(".gz"))
    throw IoError(cat(path, ": is gzip-compressed; unpack it first (gunzip)"));
  for (const Signature& signature : kNotText) {
    if (text.starts_with(signature.bytes)) throw IoError(cat(path, ": is ", signature.what));
  }
  const std::size_t first = text.find('\0');
  if (first == std::string_view::npos) return;
  const auto nuls = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\0'));
  if (nuls > text.size() / 4 || !is_utf8(text)) {
    throw IoError(cat(path, ": is not text (", nuls, " zero bytes, the first at byte ", first,
                      "); data.path must lead to text files only"));
  }
}

}  // namespace

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> files;
  std::set<fs::path> entered;
  walk(folder, "", entered, files);
  std::sort(files.begin(), files.end());
  return files;
}

Cleaned append_text_file(const std::string& path, std::string& bytes) {
  const InputFile file(path);
  const std::size_t begin = bytes.size();
  bytes.resize(begin + static_cast<std::size_t>(file.size()));
  file.read_at(0, bytes.data() + begin, static_cast<std::size_t>(file.size()));
  const std::string_view text = std::string_view(bytes).substr(begin);
  refuse_what_is_not_text(path, text);
  Cleaned cleaned;
  std::size_t from = 0;
  if (text.starts_with("\xEF\xBB\xBF")) {
    from = 3;
    cleaned.byte_order_marks = 1;
  }
  char* to = bytes.data() + begin;
  for (; from < text.size(); ++from) {
    if (text[from] == '\r' && from + 1 < text.size() && text[from + 1] == '\n') {
      ++cleaned.carriage_returns;
    } else {
      *to++ = text[from];  // never ahead of `from`
    }
  }
  bytes.resize(static_cast<std::size_t>(to - bytes.data()));
  return cleaned;
}

}  // namespace fovea::data
