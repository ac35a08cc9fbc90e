#pragma once
// Reading gzip files in pieces: nothing is unpacked ahead of what is asked for.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fovea::data {

// Whether a regular file begins with gzip's magic bytes (1f 8b). Throws IoError if it cannot be
// read.
bool is_gzip(const std::string& path);

// The unpacked bytes of a gzip file, from first to last; several members are one text after the
// other. Whatever gzip's checksums and lengths contradict is an IoError with the path and the byte
// offset in the file: wrong magic, a cut-off member, a wrong CRC, bytes behind the last member.
// Source: RFC 1952.
class GzipReader {
 public:
  explicit GzipReader(const std::string& path);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Unpacks `bytes` (1 to 2^30; more is taken as 2^30) and returns how many: fewer only at the end
  // of the last member. What was returned before an error was thrown may be part of a damaged
  // member.
  std::size_t read(char* to, std::size_t bytes);
  std::uint64_t unpacked() const { return unpacked_; }  // bytes returned so far

 private:
  struct Inflater;
  std::unique_ptr<Inflater> inflater_;
  std::uint64_t unpacked_ = 0;
};

// All unpacked bytes. Throws IoError as soon as there are more than `most`: a small file may unpack
// to a thousand times its size.
std::string read_gzip(const std::string& path, std::uint64_t most);

}  // namespace fovea::data
