#include "train/checkpoint.h"

#include <memory>
#include <utility>

#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/safetensors.h"
#include "data/source.h"
#include "train/checkpoint_moments.h"
#include "train/checkpoint_tensors.h"
#include "train/checkpoint_writer.h"
#include "train/environment.h"
#include "train/json_text.h"
#include "train/tasks/task_data.h"

namespace fovea::train {

namespace {

constexpr const char* kModelFile = "model.safetensors";

bool holds_tensors(const ManifestFile& file) {
  return file.name == kModelFile || is_optimizer_file(file.name);
}

}  // namespace

void save_checkpoint(Stream& stream, const std::string& path, nn::Module& model,
                     const optim::ParameterStore& store, const RunState& state,
                     const std::string& config_json,
                     std::span<const data::TokenizerFile> tokenizer) {
  CheckpointWriterOptions options;
  options.launch_id = static_cast<std::uint64_t>(::getpid());
  CheckpointWriter(stream, model, store, options).save(path, state, config_json, tokenizer);
}

std::string checkpoint_config(const RunConfig& config, const TokenizerCopy* tokenizer) {
  config::Node model = *config.resolved.find("model");
  const models::ModelConfig sizes = model_of(config);
  model.set("vocab_size", config::Node::scalar(cat(sizes.vocab_size), {}));
  model.set("classes", config::Node::scalar(cat(sizes.classes), {}));
  JsonObject out;
  out.add("model_type", "fovea")
      .add("fovea_version", kVersion)
      .add("task", config.task)
      .raw("model", model.json())
      .raw("data", config.resolved.find("data")->json());
  if (tokenizer != nullptr) out.raw("tokenizer", tokenizer_json(*tokenizer));
  return out.lines();
}

Checkpoint::Checkpoint(std::string path, Verify verify) : path_(std::move(path)), verify_(verify) {
  try {
    files_ = read_manifest(path_);
    for (const ManifestFile& file : files_) {
      if (verify_ == Verify::everything || !holds_tensors(file)) verify_file(path_, file);
    }
    const std::string file = cat(path_, "/state.json");
    state_ = parse_state(read_file(file), file);
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

std::vector<std::string> Checkpoint::optimizer_files() const {
  std::vector<std::string> out;
  for (const ManifestFile& file : files_) {
    if (is_optimizer_file(file.name)) out.push_back(file.name);
  }
  return out;
}

void Checkpoint::load_model(Ctx& ctx, nn::Module& model, optim::ParameterStore& store) const {
  try {
    for (const ManifestFile& file : files_) {
      if (file.name == kModelFile && verify_ == Verify::what_is_read) verify_file(path_, file);
    }
    load_model_tensors(ctx.stream, model, data::SafetensorsFile(cat(path_, "/", kModelFile)));
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
  store.refresh(ctx);
}

void Checkpoint::load_optimizer(Ctx& ctx, optim::ParameterStore& store) const {
  try {
    std::vector<std::unique_ptr<const data::SafetensorsFile>> open;
    std::vector<const data::SafetensorsFile*> files;
    for (const ManifestFile& file : files_) {
      if (!is_optimizer_file(file.name)) continue;
      open.push_back(std::make_unique<data::SafetensorsFile>(cat(path_, "/", file.name)));
      files.push_back(open.back().get());
      if (verify_ == Verify::what_is_read && needs_file(store, *files.back()))
        verify_file(path_, file);
    }
    load_moments(ctx.stream, store, files, files.size() == 1 ? files.front()->path() : path_);
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

}  // namespace fovea::train
