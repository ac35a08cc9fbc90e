#include "data/token_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"
#include "data/raw_tokens.h"
#include "data/shard.h"
#include "data/text_files.h"
#include "data/text_layout.h"

namespace fovea::data {

namespace {

namespace fs = std::filesystem;

bool is_shard(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kShardManifest, ignored) &&
         fs::exists(folder / "index.bin", ignored);
}

// The split that a token file's name tells: [NAME_]SPLIT[_NUMBER].bin.
std::optional<Split> split_of(std::string_view name) {
  name.remove_suffix(std::string_view(".bin").size());
  std::string_view word = take_last_component(name);
  if (!word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos)
    word = take_last_component(name);
  return split_named(word);
}

struct Files {
  std::vector<std::string> paths;
  bool by_fraction = false;
};

Files find_files(const std::string& path, Split split) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const TextSplit found = find_text(path, Split::train);  // a file or a pattern
    Files out{{}, true};
    for (const TextFile& file : found.files)
      out.paths.push_back(file.path);
    return out;
  }
  Files named, train;
  bool validation = false;
  std::vector<std::string> there;
  for (const std::string& name : list_files(path)) {
    if (!name.ends_with(".bin") || name.find('/') != std::string::npos) continue;
    there.push_back(quote(name));
    const std::optional<Split> of = split_of(name);
    if (!of) continue;
    const std::string file = (fs::path(path) / name).string();
    if (*of == split) named.paths.push_back(file);
    if (*of == Split::train) train.paths.push_back(file);
    validation = validation || *of == Split::validation;
  }
  if (!validation && split != Split::test) {
    train.by_fraction = true;
    named = train;
  }
  if (named.paths.empty()) {
    throw NoSuchSplit(cat(path, ": has no ", name_of(split), " split; looked for ", name_of(split),
                          "/", kShardManifest, " (made by fovea data prepare) and for *",
                          name_of(split), "*.bin",
                          there.empty() ? std::string(", and there is no .bin file")
                                        : cat(", and there is ", join(there, ", "))));
  }
  return named;
}

std::int64_t vocab_of(const DataConfig& config, const RawTokens& file) {
  if (config.vocab_size > 0) return config.vocab_size;
  if (config.tokenizer != "byte") return open_tokenizer(config.tokenizer)->vocab_size();
  if (file.usual_vocab() > 0) return file.usual_vocab();
  throw ConfigError(cat(file.path(),
                        ": does not tell how many token ids there are; give "
                        "data.vocab_size or data.tokenizer"));
}

void check_tokenizer(const DataConfig& config, const std::string& folder,
                     const ShardRecipe& recipe) {
  if (config.tokenizer == "byte") return;
  const std::string given = open_tokenizer(config.tokenizer)->fingerprint();
  if (given == recipe.tokenizer_fingerprint) return;
  throw ConfigError(cat("data.tokenizer is ", quote(config.tokenizer), " (fingerprint ", given,
                        "), but ", folder, " was prepared with another one (", recipe.tokenizer,
                        ", fingerprint ", recipe.tokenizer_fingerprint, ")"));
}

TokenSplit open_shard(const DataConfig& config, const std::string& folder, Split split) {
  const auto shard = std::make_shared<const ShardTokens>(folder);
  const ShardManifest& m = shard->manifest();
  check_tokenizer(config, folder, m.recipe);
  TokenSplit out;
  out.path = folder;
  out.split = split;
  out.tokens = shard;
  out.vocab = m.recipe.vocab;
  out.has_counts = true;
  out.counts = m.counts;
  out.tokenizer_fingerprint = m.recipe.tokenizer_fingerprint;
  out.fingerprint = m.fingerprint;
  out.summary =
      cat("tokens: ", name_of(split), " split of ", folder, ", ", m.tokens, " ", m.recipe.tokenizer,
          " tokens of ", m.counts.documents, " documents, ", m.counts.bytes, " clean bytes");
  return out;
}

}  // namespace

std::vector<std::string> corpus_paths(const DataConfig& config) {
  std::vector<std::string> paths;
  for (const MixPart& part : config.mix)
    paths.push_back(part.path);
  if (paths.empty()) paths.push_back(config.path);
  return paths;
}

std::vector<std::string> shards_in(const std::string& path) {
  if (is_shard(path)) return {path};
  std::vector<std::string> found;
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    const fs::path folder = fs::path(path) / name_of(split);
    if (is_shard(folder)) found.push_back(folder.string());
  }
  return found;
}

std::string find_shard(const std::string& path, Split split) {
  const std::vector<std::string> found = shards_in(path);
  if (found.empty()) return {};
  for (const std::string& folder : found) {
    if (read_shard_manifest(folder).recipe.split == split) return folder;
  }
  throw NoSuchSplit(cat(path, ": has no ", name_of(split), " split; there is ", join(found, ", ")));
}

std::unique_ptr<Tokenizer> open_shard_tokenizer(const std::string& path) {
  const std::vector<std::string> found = shards_in(path);
  if (found.empty()) return nullptr;
  const ShardRecipe recipe = read_shard_manifest(found[0]).recipe;
  if (recipe.tokenizer == "byte") return open_tokenizer("byte");
  const fs::path folder = fs::path(found[0]) / ".." / "tokenizer";  // beside the splits' folders
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(folder.string());
  if (tokenizer->fingerprint() != recipe.tokenizer_fingerprint) {
    throw IoError(cat(folder.string(), ": is another tokenizer (fingerprint ",
                      tokenizer->fingerprint(), ") than the one that ", found[0],
                      " was prepared with (", recipe.tokenizer_fingerprint, ")"));
  }
  return tokenizer;
}

TokenSplit open_token_files(const DataConfig& config, const std::string& path, Split split) {
  const std::string folder = find_shard(path, split);
  if (!folder.empty()) return open_shard(config, folder, split);
  const Files files = find_files(path, split);
  if (files.by_fraction && split == Split::test) find_text(path, split);  // says what is missing
  TokenSplit out;
  out.path = path;
  out.split = split;
  std::vector<JoinedTokens::Part> parts;
  Xxh3 hash;
  std::string format;
  for (const std::string& name : files.paths) {
    const auto file = std::make_shared<const RawTokens>(name, config.token_bytes);
    const std::int64_t vocab = vocab_of(config, *file);
    out.vocab = std::max(out.vocab, vocab);
    const auto held_out =
        files.by_fraction
            ? static_cast<std::int64_t>(static_cast<double>(file->size()) * config.val_fraction)
            : 0;
    const std::int64_t border = file->size() - held_out;
    const bool tail = files.by_fraction && split == Split::validation;
    parts.push_back({file, tail ? border : 0, tail ? file->size() : border});
    hash.update(cat(hash_hex(file->sampled_hash()), parts.back().begin, " ", parts.back().end));
    format = file->format();
  }
  out.tokens = std::make_shared<const JoinedTokens>(std::move(parts));
  out.fingerprint = hash.hex();
  if (config.tokenizer != "byte")
    out.tokenizer_fingerprint = open_tokenizer(config.tokenizer)->fingerprint();
  out.summary = cat("tokens: ", name_of(split), " split of ", files.paths.size(), " ", format,
                    files.paths.size() == 1 ? " file, " : " files, ", out.tokens->size(),
                    " tokens of a vocabulary of ", out.vocab);
  return out;
}

std::int64_t token_files_vocab(const DataConfig& config, const std::string& path) {
  const std::vector<std::string> found = shards_in(path);
  if (!found.empty()) return read_shard_manifest(found[0]).recipe.vocab;
  std::int64_t vocab = 0;
  for (const std::string& name : find_files(path, Split::train).paths)
    vocab = std::max(vocab, vocab_of(config, RawTokens(name, config.token_bytes)));
  return vocab;
}

}  // namespace fovea::data
