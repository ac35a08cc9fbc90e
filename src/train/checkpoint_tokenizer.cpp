#include "train/checkpoint_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/text_files.h"
#include "data/token_split.h"
#include "train/import/json_node.h"
#include "train/json_text.h"
#include "train/manifest.h"
#include "train/resume.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostConfigBytes = 4 << 20;

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifestName, ignored);
}

// What open_tokenizer(folder) looks for.
bool has_tokenizer_files(const std::string& folder) {
  constexpr const char* kNames[] = {"tokenizer.json", "vocab.json",    "encoder.json", "merges.txt",
                                    "vocab.bpe",      "tokenizer.bin", "vocab.txt"};
  std::error_code ignored;
  if (std::any_of(std::begin(kNames), std::end(kNames),
                  [&](const char* name) { return fs::exists(fs::path(folder) / name, ignored); }))
    return true;
  const std::vector<std::string> files = data::list_files(folder);
  return std::any_of(files.begin(), files.end(), [](const std::string& name) {
    return name.ends_with(".tiktoken") && name.find('/') == std::string::npos;
  });
}

// llama2.c keeps its tokenizer beside the model, which has nothing but weights.
std::string beside_llama2c(const fs::path& model) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : fs::path(".");
  std::error_code ignored;
  if (fs::exists(folder / "tokenizer.bin", ignored)) return (folder / "tokenizer.bin").string();
  std::vector<std::string> found;
  for (const std::string& name : data::list_files(folder.string())) {
    if (name.starts_with("tok") && name.ends_with(".bin") && name.find('/') == std::string::npos)
      found.push_back(name);
  }
  return found.size() == 1 ? (folder / found[0]).string() : std::string();
}

struct Named {
  std::string name;         // for open_tokenizer; "" if there is none
  std::string fingerprint;  // that it must have; "" where nothing says
};

Named in_checkpoint(const std::string& folder) {
  const config::Node json = read_json(cat(folder, "/config.json"), kMostConfigBytes);
  const config::Node* kind = json.find("tokenizer.kind");
  if (kind == nullptr) return {};
  return {kind->text() == "byte" ? std::string("byte") : folder,
          json.get_string("tokenizer.fingerprint")};
}

Named find(const std::string& model) {
  std::error_code ignored;
  fs::path path(model);
  if (fs::is_regular_file(path, ignored)) {
    if (!model.ends_with(".safetensors") && !model.ends_with(".index.json"))
      return {beside_llama2c(path), {}};
    path = path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  const std::string folder = path.string();
  if (is_checkpoint(path)) return in_checkpoint(folder);
  if (fs::is_directory(path / "ckpt", ignored)) return in_checkpoint(find_checkpoint(model).path());
  return {has_tokenizer_files(folder) ? folder : std::string(), {}};
}

Named find_or_blame(const std::string& model) {
  try {
    return find(model);
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

}  // namespace

TokenizerCopy copy_of(const data::Tokenizer& tokenizer) {
  return {std::string(tokenizer.kind()), tokenizer.fingerprint(), tokenizer.vocab_size(),
          tokenizer.files()};
}

std::string tokenizer_json(const TokenizerCopy& copy) {
  std::vector<std::string> names;
  for (const data::TokenizerFile& file : copy.files)
    names.push_back(json_string(file.name));
  return JsonObject()
      .add("kind", copy.kind)
      .add("fingerprint", copy.fingerprint)
      .add("vocab_size", copy.vocab)
      .raw("files", cat("[", join(names, ","), "]"))
      .str();
}

std::optional<TokenizerCopy> tokenizer_of_run(const RunConfig& config, const std::string& from) {
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!from.empty()) tokenizer = tokenizer_of(from);
  if (tokenizer == nullptr) tokenizer = data::open_data_tokenizer(config.data);
  if (tokenizer == nullptr && config.data.kind == "tokens" && from.empty() &&
      !config.train.init_from.empty()) {
    try {
      tokenizer = tokenizer_of(config.train.init_from);
    } catch (const CheckpointError& e) {  // ids are enough to train
      log::warn(cat("the checkpoints have no tokenizer: ", e.what()));
    }
  }
  if (tokenizer == nullptr) return std::nullopt;
  return copy_of(*tokenizer);
}

std::string tokenizer_name_of(const std::string& model) {
  return find_or_blame(model).name;
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const std::string& model,
                                              const data::TokenizerOptions& options) {
  const Named own = find_or_blame(model);
  if (own.name.empty()) return nullptr;
  try {
    std::unique_ptr<data::Tokenizer> tokenizer = data::open_tokenizer(own.name, options);
    if (!own.fingerprint.empty() && tokenizer->fingerprint() != own.fingerprint) {
      throw CheckpointError(cat(own.name, ": has another tokenizer (fingerprint ",
                                tokenizer->fingerprint(), ") than it was trained with (",
                                own.fingerprint, ")"));
    }
    return tokenizer;
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

}  // namespace fovea::train
