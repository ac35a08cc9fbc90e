#pragma once
// XXH3, 64 bits: tells files and tensors apart that changed by accident. No defence against intent.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fovea::data {

std::uint64_t xxh3_64(const void* bytes, std::size_t count);
inline std::uint64_t xxh3_64(std::string_view bytes) {
  return xxh3_64(bytes.data(), bytes.size());
}
// Of a regular file's bytes, read in pieces. Throws IoError.
std::uint64_t xxh3_64_file(const std::string& path);

// The same hash fed in pieces: the pieces' borders do not matter.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;
  void update(const void* bytes, std::size_t count);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::uint64_t value() const;  // of everything so far; more may follow
  std::string hex() const;      // hash_hex(value())

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sixteen lower-case hexadecimal digits: how manifests write a hash.
std::string hash_hex(std::uint64_t hash);

}  // namespace fovea::data
