#include <algorithm>
#include <cstring>
#include <filesystem>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "train/import/hub_config.h"
#include "train/import/imported_model.h"
#include "train/import/json_node.h"
#include "train/import/llama2c_model.h"
#include "train/import/model_keys.h"
#include "train/manifest.h"
#include "train/resume.h"
#include "train/run_config.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHubConfig = "config.json";
constexpr const char* kHubWeights = "model.safetensors";
constexpr const char* kHubIndex = "model.safetensors.index.json";

ImportedModel import_own(const std::string& path) {
  const Checkpoint checkpoint = find_checkpoint(path);
  ImportedModel out;
  out.path = checkpoint.path();
  out.layout = "fovea checkpoint";
  const RunConfig run = RunConfig::of_checkpoint(
      config::parse(checkpoint.state().config_yaml, cat(checkpoint.path(), "/state.json")));
  out.config = run.model;
  out.config.packed = false;  // that is of the data it was trained on
  // config.json knows the vocabulary where the run's configuration left it to the data.
  const std::string description = cat(checkpoint.path(), "/", kHubConfig);
  const config::Node json = read_json(description, 4 << 20);
  out.config.vocab_size = static_cast<int>(json.get_int("model.vocab_size"));
  out.keys = *run.resolved.find("model");
  out.keys.set("vocab_size", *json.find("model.vocab_size"));
  if (const config::Node* classes = json.find("model.classes"); classes != nullptr)
    out.config.classes = static_cast<int>(classes->as_int("model.classes"));
  out.tensors = open_safetensors(cat(checkpoint.path(), "/", kHubWeights));
  for (const auto& [name, tensor] : out.tensors)
    out.plan.parts[name] = {{.name = name, .shape = tensor.shape}};
  return out;
}

bool same_bytes(const ForeignTensor& a, const ForeignTensor& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const Tensor x = a.read(), y = b.read();
  return std::memcmp(x.data<char>(), y.data<char>(), static_cast<std::size_t>(x.bytes())) == 0;
}

// Whether the head is the token embedding: what the description says, else what the tensors show.
bool is_tied(const HubConfig& hub, const ForeignTensors& tensors, const std::string& embedding,
             const std::string& path) {
  const auto head = tensors.find("lm_head.weight"), table = tensors.find(embedding);
  if (head == tensors.end() || table == tensors.end()) return hub.tie_embeddings.value_or(true);
  if (!hub.tie_embeddings.value_or(hub.family == HubFamily::gpt2)) return false;
  if (same_bytes(head->second, table->second)) return true;
  if (!hub.tie_embeddings.has_value()) return false;
  throw CheckpointError(cat(path, ": lm_head.weight and ", embedding,
                            " differ, but tie_word_embeddings is true in its ", kHubConfig));
}

// Whether any layer has a bias: not the causal masks of old GPT-2 files, which have that name too.
bool has_bias(const ForeignTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return tensor.first.ends_with(".bias") && !tensor.first.ends_with(".attn.bias");
  });
}

ImportedModel import_hub(const std::string& folder, const std::string& weights) {
  const HubConfig hub = read_hub_config((fs::path(folder) / kHubConfig).string());
  ImportedModel out;
  out.path = folder;
  out.layout = cat("Hugging Face ", hub.model_type);
  out.config = hub.model;
  out.tensors =
      weights.ends_with(".json") ? open_sharded_safetensors(weights) : open_safetensors(weights);
  const bool gpt2 = hub.family == HubFamily::gpt2;
  const std::string inner = gpt2 ? "transformer." : "model.";
  const std::string table = gpt2 ? "wte.weight" : "embed_tokens.weight";
  const std::string prefix = out.tensors.contains(inner + table) ? inner : "";
  out.config.bias = has_bias(out.tensors);
  out.config.tie_embeddings = is_tied(hub, out.tensors, prefix + table, weights);
  out.plan = gpt2 ? gpt2_plan(out.config, prefix) : llama_plan(out.config, prefix);
  check_plan(out.plan, out.tensors, weights);
  out.keys = model_keys(out.config, folder);
  return out;
}

ImportedModel import_llama2c(const std::string& path) {
  Llama2cModel file = open_llama2c(path);
  ImportedModel out;
  out.path = path;
  out.layout = "llama2.c";
  out.config = std::move(file.model);
  out.tensors = std::move(file.tensors);
  out.plan = llama_plan(out.config, "model.");
  check_plan(out.plan, out.tensors, path);
  out.keys = model_keys(out.config, path);
  return out;
}

ImportedModel import_folder(const fs::path& folder) {
  for (const char* name : {kHubWeights, kHubIndex}) {
    if (fs::exists(folder / name) && fs::exists(folder / kHubConfig))
      return import_hub(folder.string(), (folder / name).string());
  }
  throw CheckpointError(cat(folder.string(),
                            ": is a folder, but neither a run, nor a checkpoint, nor a model with ",
                            kHubConfig, " and ", kHubWeights, " or ", kHubIndex,
                            "; of a llama2.c model, give the .bin file"));
}

// Also of what is left of one: what is missing is for Checkpoint to say.
bool is_checkpoint(const fs::path& folder) {
  for (const char* name : {kManifestName, "state.json", "optimizer.safetensors"})
    if (fs::exists(folder / name)) return true;
  return false;
}

bool is_own_folder(const fs::path& path) {
  return is_checkpoint(path) || fs::exists(path / "ckpt");
}

ImportedModel import_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.ends_with(".safetensors") && !name.ends_with(".index.json")) {
    return import_llama2c(path.string());
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_checkpoint(folder)) return import_own(folder.string());
  if (!fs::exists(folder / kHubConfig)) {
    throw CheckpointError(cat(path.string(), ": has no ", kHubConfig,
                              " beside it, so the sizes of the model are not known"));
  }
  return import_hub(folder.string(), path.string());
}

}  // namespace

bool is_foreign_model(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return !is_own_folder(path) && fs::exists(fs::path(path) / kHubConfig, error);
  }
  return fs::is_regular_file(path, error);
}

ImportedModel import_model(const std::string& path) {
  try {
    if (!fs::exists(path)) throw CheckpointError(cat(path, ": is no model: it does not exist"));
    if (!fs::is_directory(path)) return import_file(path);
    return is_own_folder(path) ? import_own(path) : import_folder(path);
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  } catch (const fs::filesystem_error& e) {
    throw CheckpointError(cat(path, ": cannot be read: ", e.code().message()));
  }
}

}  // namespace fovea::train
