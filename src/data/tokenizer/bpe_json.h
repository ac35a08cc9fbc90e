#pragma once
// The JSON part of BPE vocabularies, as plain data. Both throw IoError with the path.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::data {

// Whether JSON text names an object "model", as tokenizer.json does; in vocab.json it is a number.
bool has_model_object(std::string_view text);

// {"token": id, ...} as spellings by id. Ids are 0 to n - 1, each once.
std::vector<std::string> parse_vocab_json(const std::string& path, std::string_view text);

struct HubAddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
};
struct HubBpe {
  std::vector<std::string> spellings;  // by id, added tokens included
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<HubAddedToken> added;
  std::optional<std::string> unknown;
  bool ignore_merges = false;
};
HubBpe parse_hub_json(const std::string& path, std::string_view text);

}  // namespace fovea::data
