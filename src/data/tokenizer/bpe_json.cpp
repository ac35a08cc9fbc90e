#include "data/tokenizer/bpe_json.h"

#include <set>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/strict_json.h"

namespace fovea::data {

namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;  // a tokenizer.json nests 6 levels

[[noreturn]] void fail(const std::string& path, std::string_view reason) {
  throw IoError(cat(path, ": ", reason));
}

json parse(const std::string& path, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) fail(path, "has a NUL byte, so it is not JSON");
  return parse_strict_json<json>(path, text, kMaxDepth);
}

std::string shown(const json& value) {
  return quote(value.dump(-1, ' ', true), 60);
}

// One id into `by_id`, which has a place for every id there may be.
void place(const std::string& path, const std::string& token, const json& id,
           std::vector<const std::string*>& by_id) {
  if (!id.is_number_integer()) {
    fail(path, cat("the id of ", quote(token), " is ", shown(id), ", not a whole number"));
  }
  if (!id.is_number_unsigned()) {
    fail(path, cat("the id of ", quote(token), " is ", shown(id), ", but ids begin at 0"));
  }
  const auto i = id.get<std::uint64_t>();
  if (i >= by_id.size()) {
    fail(path, cat("the id of ", quote(token), " is ", i, ", but the ids of ", by_id.size(),
                   " tokens are 0 to ", by_id.size() - 1, " without a hole"));
  }
  const std::string*& here = by_id[static_cast<std::size_t>(i)];
  if (here != nullptr && *here != token) {
    fail(path, cat(quote(*here), " and ", quote(token), " share the id ", i));
  }
  here = &token;
}

std::vector<std::string> copies(const std::vector<const std::string*>& by_id) {
  std::vector<std::string> spellings;
  spellings.reserve(by_id.size());
  for (const std::string* token : by_id)
    spellings.push_back(*token);
  return spellings;
}

// The member of an object, null if it is not there.
const json& member(const json& object, const char* name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

bool is_null_or(const json& value, const json& other) {
  return value.is_null() || value == other;
}

// "type" of one of the parts of a tokenizer.json, "null" if it is not there.
std::string type_of(const json& part) {
  if (part.is_null()) return "null";
  const json& type = part.is_object() ? member(part, "type") : part;
  return type.is_string() ? type.get<std::string>() : shown(type);
}

void refuse_other_parts(const std::string& path, const json& hub) {
  if (!member(hub, "normalizer").is_null()) {
    fail(path, cat("normalizer ", type_of(member(hub, "normalizer")), " is not supported"));
  }
  const json& splitter = member(hub, "pre_tokenizer");
  if (type_of(splitter) != "ByteLevel") {
    fail(path, cat("pre_tokenizer ", type_of(splitter), " is not supported; only ByteLevel is"));
  }
  if (!is_null_or(member(splitter, "use_regex"), true)) {
    fail(path, "pre_tokenizer ByteLevel with use_regex false is not supported");
  }
  if (member(splitter, "add_prefix_space") != false) {
    fail(path, "pre_tokenizer ByteLevel with add_prefix_space true is not supported");
  }
  const json& model = member(hub, "model");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_null_or(member(model, name), "")) {
      fail(path, cat("model.", name, " ", shown(member(model, name)), " is not supported"));
    }
  }
  for (const char* name : {"byte_fallback", "fuse_unk"}) {
    if (!is_null_or(member(model, name), false)) {
      fail(path, cat("model.", name, " ", shown(member(model, name)), " is not supported"));
    }
  }
  if (!is_null_or(member(model, "dropout"), 0)) {
    fail(path, "model.dropout is not supported: ids would be random");
  }
}

std::pair<std::string, std::string> parse_merge(const std::string& path, const json& merge,
                                                std::size_t number) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  fail(path, cat("merge ", number, " is ", shown(merge), ", not \"A B\" or [\"A\", \"B\"]"));
}

HubAddedToken parse_added(const std::string& path, const json& token) {
  const json& content = token.is_object() ? member(token, "content") : token;
  const json& id = token.is_object() ? member(token, "id") : token;
  if (!content.is_string() || !id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7fffffff ||
      content.get_ref<const std::string&>().empty()) {
    fail(path, cat("added token ", shown(token), " needs a content and an id"));
  }
  for (const char* name : {"lstrip", "rstrip", "single_word"}) {
    if (!is_null_or(member(token, name), false)) {
      fail(path, cat("added token ", shown(content), ": ", name, " is not supported"));
    }
  }
  return {content.get<std::string>(), id.get<std::int32_t>(), member(token, "special") == true};
}

}  // namespace

bool has_model_object(std::string_view text) {
  constexpr std::string_view kName = "\"model\"";
  for (std::size_t at = text.find(kName); at != std::string_view::npos;
       at = text.find(kName, at + 1)) {
    std::size_t next = text.find_first_not_of(" \t\r\n", at + kName.size());
    if (next == std::string_view::npos || text[next] != ':') continue;
    next = text.find_first_not_of(" \t\r\n", next + 1);
    if (next != std::string_view::npos && text[next] == '{') return true;
  }
  return false;
}

std::vector<std::string> parse_vocab_json(const std::string& path, std::string_view text) {
  const json vocab = parse(path, text);
  if (!vocab.is_object() || vocab.empty()) fail(path, "is not an object of tokens and their ids");
  std::vector<const std::string*> by_id(vocab.size());
  for (const auto& [token, id] : vocab.get_ref<const json::object_t&>())
    place(path, token, id, by_id);
  return copies(by_id);  // as many distinct ids as places: no place is empty
}

HubBpe parse_hub_json(const std::string& path, std::string_view text) {
  const json hub = parse(path, text);
  if (!hub.is_object() || !member(hub, "model").is_object()) fail(path, "has no object \"model\"");
  const json& model = member(hub, "model");
  const json& vocab = member(model, "vocab");
  const json& merges = member(model, "merges");
  // Files of the library's first years do not name the type.
  const std::string type =
      member(model, "type").is_null() && merges.is_array() ? "BPE" : type_of(model);
  if (type != "BPE") fail(path, cat("model.type ", quote(type), " is not supported; only BPE is"));
  refuse_other_parts(path, hub);
  if (!vocab.is_object()) fail(path, "model.vocab is not an object");
  if (!merges.is_array()) fail(path, "model.merges is not a list");
  HubBpe bpe;
  if (const json& added = member(hub, "added_tokens"); added.is_array()) {
    for (const json& token : added)
      bpe.added.push_back(parse_added(path, token));
  } else if (!added.is_null()) {
    fail(path, "added_tokens is not a list");
  }
  std::set<std::string> beyond;  // added tokens that the vocabulary lacks
  for (const HubAddedToken& token : bpe.added) {
    if (!vocab.contains(token.content)) beyond.insert(token.content);
  }
  std::vector<const std::string*> by_id(vocab.size() + beyond.size());
  if (by_id.empty()) fail(path, "model.vocab is empty");
  for (const auto& [token, id] : vocab.get_ref<const json::object_t&>())
    place(path, token, id, by_id);
  for (const HubAddedToken& token : bpe.added)
    place(path, token.content, static_cast<std::uint64_t>(token.id), by_id);
  for (std::size_t id = 0; id < by_id.size(); ++id)
    if (by_id[id] == nullptr) fail(path, cat("no token has the id ", id));
  bpe.spellings = copies(by_id);
  for (const json& merge : merges)
    bpe.merges.push_back(parse_merge(path, merge, bpe.merges.size() + 1));
  if (const json& unknown = member(model, "unk_token"); unknown.is_string())
    bpe.unknown = unknown.get<std::string>();
  bpe.ignore_merges = member(model, "ignore_merges") == true;
  return bpe;
}

}  // namespace fovea::data
