#include "data/shard_manifest.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kKind = "fovea tokens";

// Paths may be no UTF-8; JSON must be.
std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::uint64_t hash_of(const Json& value) {
  const auto text = value.get<std::string>();
  std::uint64_t hash = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, hash, 16);
  if (error != std::errc() || at != end || text.size() != 16)
    throw IoError(cat(quote(text), " is no hash"));
  return hash;
}

Split split_of(const std::string& name) {
  for (const Split split : {Split::train, Split::validation, Split::test})
    if (name == name_of(split)) return split;
  throw IoError(cat(quote(name), " is no split"));
}

Json recipe_json(const ShardRecipe& recipe) {
  Json sources = Json::array();
  for (const SourceFile& file : recipe.sources) {
    sources.push_back(
        Json{{"name", file.name}, {"bytes", file.bytes}, {"xxh3", hash_hex(file.xxh3)}});
  }
  return Json{{"split", name_of(recipe.split)},
              {"layout", recipe.layout},
              {"by_fraction", recipe.by_fraction},
              {"val_fraction", recipe.val_fraction},
              {"text_field", recipe.text_field},
              {"tokenizer", recipe.tokenizer},
              {"tokenizer_fingerprint", recipe.tokenizer_fingerprint},
              {"vocab", recipe.vocab},
              {"sources", std::move(sources)}};
}

ShardRecipe recipe_of(const Json& json) {
  ShardRecipe out;
  out.split = split_of(json.at("split").get<std::string>());
  json.at("layout").get_to(out.layout);
  json.at("by_fraction").get_to(out.by_fraction);
  json.at("val_fraction").get_to(out.val_fraction);
  json.at("text_field").get_to(out.text_field);
  json.at("tokenizer").get_to(out.tokenizer);
  json.at("tokenizer_fingerprint").get_to(out.tokenizer_fingerprint);
  json.at("vocab").get_to(out.vocab);
  for (const Json& file : json.at("sources")) {
    out.sources.push_back({file.at("name").get<std::string>(),
                           file.at("bytes").get<std::uint64_t>(), hash_of(file.at("xxh3"))});
  }
  return out;
}

ShardManifest manifest_of(const Json& json) {
  ShardManifest out;
  out.recipe = recipe_of(json.at("recipe"));
  json.at("source").get_to(out.source);
  json.at("tokens").get_to(out.tokens);
  json.at("token_bytes").get_to(out.token_bytes);
  json.at("documents").get_to(out.counts.documents);
  json.at("bytes").get_to(out.counts.bytes);
  json.at("characters").get_to(out.counts.characters);
  json.at("words").get_to(out.counts.words);
  json.at("lines").get_to(out.counts.lines);
  json.at("bytes_not_utf8").get_to(out.counts.invalid_bytes);
  json.at("byte_order_marks_removed").get_to(out.removed.byte_order_marks);
  json.at("carriage_returns_removed").get_to(out.removed.carriage_returns);
  json.at("fingerprint").get_to(out.fingerprint);
  json.at("blocks_xxh3").get_to(out.blocks_xxh3);
  json.at("index_xxh3").get_to(out.index_xxh3);
  if (out.tokens < 0 || out.counts.documents < 0 ||
      (out.token_bytes != 2 && out.token_bytes != 4)) {
    throw IoError("a count is out of range");
  }
  return out;
}

}  // namespace

std::string ShardManifest::json() const {
  Json json{{"schema", kSchema},
            {"kind", kKind},
            {"tokens", tokens},
            {"token_bytes", token_bytes},
            {"documents", counts.documents},
            {"bytes", counts.bytes},
            {"characters", counts.characters},
            {"words", counts.words},
            {"lines", counts.lines},
            {"bytes_not_utf8", counts.invalid_bytes},
            {"byte_order_marks_removed", removed.byte_order_marks},
            {"carriage_returns_removed", removed.carriage_returns},
            {"fingerprint", fingerprint},
            {"blocks_xxh3", blocks_xxh3},
            {"index_xxh3", index_xxh3},
            {"source", source},
            {"recipe", recipe_json(recipe)}};
  const std::string hash = hash_hex(xxh3_64(dump(json)));
  json["xxh3"] = hash;
  return dump(json);
}

ShardManifest read_shard_manifest(const std::string& folder) {
  const std::string path = cat(folder, "/", kShardManifest);
  const std::string text = read_file(path);
  try {
    Json json = Json::parse(text);
    if (!json.is_object() || json.value("kind", "") != kKind)
      throw IoError(cat("is of another kind than ", quote(kKind)));
    if (json.at("schema").get<int>() != kSchema) {
      throw IoError(cat("has schema ", json.at("schema").get<int>(), ", but this fovea reads ",
                        kSchema, "; prepare the data again"));
    }
    const auto hash = json.at("xxh3").get<std::string>();
    json.erase("xxh3");
    if (hash != hash_hex(xxh3_64(dump(json))))
      throw IoError("is altered: its own hash does not fit");
    return manifest_of(json);
  } catch (const nlohmann::json::exception& e) {
    throw IoError(cat(path, ": is no manifest: ", quote(e.what(), 200)));
  } catch (const IoError& e) {
    throw IoError(cat(path, ": ", e.what()));
  }
}

}  // namespace fovea::data
