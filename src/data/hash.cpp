#include "data/hash.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <xxhash.h>

#include "core/error.h"
#include "core/file.h"

namespace fovea::data {

struct Xxh3::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    FOVEA_ASSERT(xxh != nullptr);
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::update(const void* bytes, std::size_t count) {
  XXH3_64bits_update(state_->xxh, bytes, count);
}

std::uint64_t Xxh3::value() const {
  return XXH3_64bits_digest(state_->xxh);
}

std::string Xxh3::hex() const {
  return hash_hex(value());
}

std::uint64_t xxh3_64(const void* bytes, std::size_t count) {
  return XXH3_64bits(bytes, count);
}

std::uint64_t xxh3_64_file(const std::string& path) {
  const InputFile file(path);
  constexpr std::uint64_t kPiece = 1 << 20;
  std::vector<char> piece(static_cast<std::size_t>(std::min(kPiece, file.size())));
  Xxh3 hash;
  for (std::uint64_t at = 0; at < file.size(); at += kPiece) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, file.size() - at));
    file.read_at(at, piece.data(), count);
    hash.update(piece.data(), count);
  }
  return hash.value();
}

std::string hash_hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace fovea::data
