#include "data/gzip.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr int kGzipOnly = 15 + 16;  // zlib's code for: a window of 32 KiB, gzip headers only

}  // namespace

bool is_gzip(const std::string& path) {
  const InputFile file(path);
  if (file.size() < 2) return false;
  unsigned char magic[2];
  file.read_at(0, magic, 2);
  return magic[0] == 0x1f && magic[1] == 0x8b;
}

struct GzipReader::Inflater {
  explicit Inflater(const std::string& path) : file(path), packed(kPiece) {
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw OutOfMemory("zlib: inflateInit2 failed");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  [[noreturn]] void fail(std::string_view what) const {
    throw IoError(cat(file.path(), ": ", what));
  }

  // The next byte of the file that zlib has not taken.
  std::uint64_t offset() const { return taken - stream.avail_in; }

  // Gives zlib more of the file; false at its end.
  bool refill() {
    if (stream.avail_in > 0) return true;
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, file.size() - taken));
    if (bytes == 0) return false;
    file.read_at(taken, packed.data(), bytes);
    taken += bytes;
    stream.next_in = packed.data();
    stream.avail_in = static_cast<uInt>(bytes);
    return true;
  }

  InputFile file;
  std::vector<unsigned char> packed;
  z_stream stream = {};
  std::uint64_t taken = 0;  // bytes of the file read so far
  std::uint64_t member_at = 0;
  bool inside = false;  // of a member
  int members = 0;
};

GzipReader::GzipReader(const std::string& path) : inflater_(std::make_unique<Inflater>(path)) {}
GzipReader::~GzipReader() = default;

std::size_t GzipReader::read(char* to, std::size_t bytes) {
  Inflater& z = *inflater_;
  FOVEA_ASSERT(bytes > 0);
  const auto wanted = static_cast<uInt>(std::min<std::size_t>(bytes, std::size_t{1} << 30));
  z.stream.next_out = reinterpret_cast<unsigned char*>(to);
  z.stream.avail_out = wanted;
  while (z.stream.avail_out > 0) {
    const bool more = z.refill();
    if (!z.inside) {
      if (!more && z.members > 0) break;
      if (!more) z.fail("is empty, not a gzip file");
      if (z.members > 0) inflateReset(&z.stream);
      z.member_at = z.offset();
      z.inside = true;
    }
    if (!more) {
      z.fail(cat("is cut off: the member that begins at byte ", z.member_at,
                 " goes on behind byte ", z.file.size(), ", the last"));
    }
    const int state = inflate(&z.stream, Z_NO_FLUSH);
    if (state == Z_STREAM_END) {
      z.inside = false;
      ++z.members;
    } else if (state == Z_MEM_ERROR) {
      throw OutOfMemory(cat(z.file.path(), ": zlib ran out of memory"));
    } else if (state != Z_OK && state != Z_BUF_ERROR) {
      const bool at_head = z.stream.total_out == 0 && z.offset() - z.member_at <= 2;
      const std::string reason = z.stream.msg == nullptr ? "damaged" : z.stream.msg;
      if (at_head && z.members == 0) z.fail("is not a gzip file: it does not begin with 1f 8b");
      if (at_head) z.fail(cat("has bytes behind the gzip member that ends at byte ", z.member_at));
      z.fail(cat("is damaged near byte ", z.offset(), ": ", quote(reason)));
    }
  }
  const std::size_t got = wanted - z.stream.avail_out;
  unpacked_ += got;
  return got;
}

std::string read_gzip(const std::string& path, std::uint64_t most) {
  GzipReader reader(path);
  std::string text;
  std::vector<char> piece(kPiece);
  while (const std::size_t got = reader.read(piece.data(), piece.size())) {
    if (got > most - text.size()) {
      throw IoError(cat(path, ": unpacks to more than the limit of ", most, " bytes"));
    }
    text.append(piece.data(), got);
  }
  return text;
}

}  // namespace fovea::data
