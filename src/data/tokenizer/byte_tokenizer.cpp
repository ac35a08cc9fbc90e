#include "data/tokenizer/byte_tokenizer.h"

#include "data/hash.h"

namespace fovea::data {

std::string ByteTokenizer::fingerprint() const {
  return hash_hex(xxh3_64(kind()));
}

void ByteTokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::size_t begin = ids.size();
  ids.resize(begin + text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    ids[begin + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteTokenizer::piece(std::int32_t id) const {
  check_id(id);
  return std::string(1, static_cast<char>(id));
}

}  // namespace fovea::data
