#pragma once
// Text files, plain or gzip, read in pieces and cleaned on the way.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "data/gzip.h"

namespace fovea::data {

// The bytes of a file, unpacked if it is a gzip file: by its first bytes, or by its name ending in
// ".gz".
class ByteReader {
 public:
  explicit ByteReader(const std::string& path);  // throws IoError
  // Reads `bytes` and returns how many: fewer only at the end. Throws IoError.
  std::size_t read(char* to, std::size_t bytes);

 private:
  std::unique_ptr<InputFile> plain_;
  std::unique_ptr<GzipReader> packed_;
  std::uint64_t at_ = 0;
};

// What cleaning took away.
struct Removed {
  std::int64_t byte_order_marks = 0, carriage_returns = 0;
};
inline Removed& operator+=(Removed& to, const Removed& more) {
  to.byte_order_marks += more.byte_order_marks;
  to.carriage_returns += more.carriage_returns;
  return to;
}

// Cleans one document that comes in pieces: without a UTF-8 byte order mark at its beginning (a
// second one is text), and with LF for CR LF (a CR elsewhere is text). Everything that is counted
// or tokenised is clean text.
class TextCleaner {
 public:
  // Appends what is certain by now to `clean`, and to `cut_at`, if given, the places in it of every
  // LF that a CR stood before.
  void add(std::string_view raw, std::string& clean, std::vector<std::size_t>* cut_at = nullptr);
  void finish(std::string& clean);
  const Removed& removed() const { return removed_; }

 private:
  std::string head_;  // of the document, until a byte order mark can be told
  bool begins_ = true, held_cr_ = false;
  Removed removed_;
};

// A text file as one clean document. Refuses what is not text: compressed by something else than
// gzip, an archive, UTF-16, UTF-32, or binary (zero bytes in what is not UTF-8, or more than a
// quarter of all bytes zero). Legacy 8-bit encodings have no zero bytes and are kept as they are.
class TextReader {
 public:
  explicit TextReader(const std::string& path);  // throws IoError
  // Replaces `chunk` by the next clean bytes, about 1 MiB. False at the end. Throws IoError.
  bool read(std::string& chunk);
  // Places in the last chunk of every LF that a CR stood before.
  const std::vector<std::size_t>& cut_at() const { return cut_at_; }
  const Removed& removed() const { return cleaner_.removed(); }

 private:
  void examine(std::string_view raw);
  void judge() const;

  std::string path_;
  ByteReader bytes_;
  TextCleaner cleaner_;
  std::string raw_;
  std::vector<std::size_t> cut_at_;
  std::string undecided_;  // the last bytes, perhaps the beginning of a character
  std::uint64_t read_ = 0, zeros_ = 0, first_zero_ = 0;
  bool is_utf8_ = true, ended_ = false;
};

}  // namespace fovea::data
