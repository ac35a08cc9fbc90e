#include "data/tokenizer/pieces.h"

#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::uint64_t piece_hash(std::string_view piece) {
  const std::size_t n = piece.size();
  const char* p = piece.data();
  std::uint64_t head = 0, tail = 0;
  if (n > 16) return xxh3_64(piece);
  if (n >= 8) {
    head = load<std::uint64_t>(p);
    tail = load<std::uint64_t>(p + n - 8);  // overlaps `head` below 16 bytes
  } else if (n >= 4) {
    head = load<std::uint32_t>(p);
    tail = load<std::uint32_t>(p + n - 4);
  } else if (n > 0) {
    head = static_cast<unsigned char>(p[0]);
    tail = (std::uint64_t{static_cast<unsigned char>(p[n / 2])} << 8) |
           static_cast<unsigned char>(p[n - 1]);
  }
  // Odd constants from the digits of pi.
  return mix(mix(head ^ 0x243f6a8885a308d3ull, tail ^ 0x13198a2e03707344ull),
             n ^ 0xa4093822299f31d1ull);
}

std::int32_t Pieces::append(std::string_view piece) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  if (ends_.size() >= kMost) throw IoError(cat("a vocabulary has more than ", kMost, " entries"));
  bytes_.append(piece);
  ends_.push_back(bytes_.size());
  return size() - 1;
}

std::size_t Pieces::slot_of(std::string_view piece, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t at = static_cast<std::size_t>(hash) & mask;
  while (slots_[at].id >= 0 && (slots_[at].tag != tag || (*this)[slots_[at].id] != piece))
    at = (at + 1) & mask;
  return at;
}

void Pieces::index(std::int32_t id) {
  if ((indexed_ + 1) * 2 > slots_.size()) grow();
  const std::string_view piece = (*this)[id];
  const std::uint64_t hash = piece_hash(piece);
  Slot& slot = slots_[slot_of(piece, hash)];
  if (slot.id >= 0) return;
  slot = {static_cast<std::uint32_t>(hash >> 32), id};
  ++indexed_;
}

std::int32_t Pieces::find(std::string_view piece) const {
  return slots_[slot_of(piece, piece_hash(piece))].id;
}

void Pieces::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    const std::string_view piece = (*this)[slot.id];
    slots_[slot_of(piece, piece_hash(piece))] = slot;
  }
}

}  // namespace fovea::data
