#include "train/checkpoint.h"

#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/safetensors.h"
#include "data/source.h"
#include "train/environment.h"
#include "train/json_text.h"
#include "train/manifest.h"

namespace fovea::train {

namespace {

using Tensors = std::vector<data::NamedTensor>;

Tensors model_tensors(nn::Module& model) {
  Tensors out;
  model.each_parameter([&](const std::string& path, nn::Parameter& parameter) {
    out.push_back({path, parameter.master});
  });
  model.each_buffer([&](const std::string& path, nn::Buffer& buffer) {
    out.push_back({path, buffer.value});
  });
  return out;
}

Tensors moments(const optim::ParameterStore& store) {
  Tensors out;
  for (const auto& [prefix, flat] :
       {std::pair("first/", store.first_moment()), std::pair("second/", store.second_moment())}) {
    for (const optim::Segment& segment : store.segments()) {
      out.push_back({cat(prefix, segment.parameter->path),
                     flat.slice(0, segment.begin, segment.begin + segment.size)
                         .reshape(segment.parameter->shape)});
    }
  }
  return out;
}

// The same tensors in host memory; those that lie there already are shared.
Tensors on_host(Stream& stream, Tensors tensors) {
  for (data::NamedTensor& named : tensors) {
    if (named.tensor.device().is_cuda()) named.tensor = named.tensor.to(kCpu, stream);
  }
  return tensors;
}

ManifestFile write_tensors(const std::string& folder, const std::string& name,
                           const Tensors& tensors,
                           const std::map<std::string, std::string>& metadata) {
  const std::string path = cat(folder, "/", name);
  ManifestFile out{name, 0, 0, {}};
  // Hashed from memory, so that the manifest knows what was meant and not what the disk made of it.
  for (const auto& [tensor_name, tensor] : tensors) {
    out.tensors.emplace_back(
        tensor_name, data::xxh3_64(tensor.view().data, static_cast<std::size_t>(tensor.bytes())));
  }
  data::write_safetensors(path, tensors, metadata);
  out.bytes = std::filesystem::file_size(path);
  out.xxh3 = data::xxh3_64_file(path);
  return out;
}

ManifestFile write_text(const std::string& folder, const std::string& name,
                        const std::string& text) {
  write_file_synced(cat(folder, "/", name), text);
  return {name, text.size(), data::xxh3_64(text), {}};
}

void write_all(Stream& stream, const std::string& folder, nn::Module& model,
               const optim::ParameterStore& store, const RunState& state,
               const std::string& config_json, std::span<const data::TokenizerFile> tokenizer) {
  std::map<std::string, std::string> metadata{{"format", "fovea"}};
  for (const auto& [alias, path] : model.aliases())
    metadata.emplace(cat("alias:", alias), path);
  std::vector<ManifestFile> files;
  files.push_back(write_text(folder, "config.json", config_json));
  for (const data::TokenizerFile& file : tokenizer)
    files.push_back(write_text(folder, file.name, file.bytes));
  files.push_back(
      write_tensors(folder, "model.safetensors", on_host(stream, model_tensors(model)), metadata));
  files.push_back(write_tensors(folder, "optimizer.safetensors", on_host(stream, moments(store)),
                                {{"format", "fovea"}}));
  files.push_back(write_text(folder, "state.json", state_json(state)));
  write_file_synced(cat(folder, "/", kManifestName), manifest_json(files));
  sync_folder(folder);
}

// Frees the name: an older checkpoint of this step (of an abandoned continuation, or a torn one).
void set_aside(const std::string& path, const std::string& aside) {
  if (!std::filesystem::exists(path)) return;
  rename_over(path, aside);
  std::filesystem::remove_all(aside);
}

// Copies what fits and reports all that does not.
void load_tensors(Stream& stream, const std::string& path, const Tensors& into) {
  try {
    const data::SafetensorsFile file(path);
    std::string wrong;
    std::map<std::string_view, const Tensor*> wanted;
    for (const auto& [name, tensor] : into) {
      wanted.emplace(name, &tensor);
      const data::SafetensorsEntry* entry = file.find(name);
      if (entry == nullptr) {
        wrong += cat("\n  missing     ", name, " ", tensor.shape().str());
        continue;
      }
      Shape shape;
      for (const std::int64_t size : entry->shape) {
        if (shape.rank() < kMaxRank) shape.push_back(size);
      }
      if (!(shape == tensor.shape()) || entry->shape.size() > static_cast<std::size_t>(kMaxRank)) {
        wrong += cat("\n  mis-shaped  ", name, " ", shape.str(), ", but the model has ",
                     tensor.shape().str());
      } else if (is_float(entry->dtype) != is_float(tensor.dtype())) {
        wrong += cat("\n  mis-typed   ", name, " ", name_of(entry->dtype), ", but the model has ",
                     name_of(tensor.dtype()));
      }
    }
    for (const data::SafetensorsEntry& entry : file.entries()) {
      if (!wanted.contains(entry.name)) wrong += cat("\n  extra       ", entry.name);
    }
    if (!wrong.empty()) throw CheckpointError(cat(path, ": is of another model:", wrong));
    for (const auto& [name, tensor] : into) {
      if (!tensor.device().is_meta()) transfer(tensor, file.read(name), stream);
    }
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

}  // namespace

void save_checkpoint(Stream& stream, const std::string& path, nn::Module& model,
                     const optim::ParameterStore& store, const RunState& state,
                     const std::string& config_json,
                     std::span<const data::TokenizerFile> tokenizer) {
  const std::filesystem::path target(path);
  const std::string parent = target.parent_path().string(), name = target.filename().string();
  const std::string temporary = cat(parent, "/.writing_", name, "_", ::getpid());
  try {
    std::filesystem::create_directories(temporary);
    write_all(stream, temporary, model, store, state, config_json, tokenizer);
    set_aside(path, cat(parent, "/.deleting_", name, "_", ::getpid()));
    rename_over(temporary, path);
  } catch (const std::filesystem::filesystem_error& e) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
    throw IoError(cat(path, ": the checkpoint cannot be written: ", e.code().message()));
  } catch (const IoError& e) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
    throw IoError(cat(path, ": the checkpoint cannot be written: ", e.what()));
  }
}

std::string checkpoint_config(const RunConfig& config, const TokenizerCopy* tokenizer) {
  config::Node model = *config.resolved.find("model");
  const int vocabulary =
      config.model.vocab_size > 0 ? config.model.vocab_size : data::vocab_size(config.data);
  model.set("vocab_size", config::Node::scalar(cat(vocabulary), {}));
  JsonObject out;
  out.add("model_type", "fovea")
      .add("fovea_version", kVersion)
      .add("task", config.task)
      .raw("model", model.json())
      .raw("data", config.resolved.find("data")->json());
  if (tokenizer != nullptr) out.raw("tokenizer", tokenizer_json(*tokenizer));
  return out.lines();
}

Checkpoint::Checkpoint(std::string path) : path_(std::move(path)) {
  try {
    verify_manifest(path_);
    const std::string file = cat(path_, "/state.json");
    state_ = parse_state(read_file(file), file);
  } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

void Checkpoint::load_model(Ctx& ctx, nn::Module& model, optim::ParameterStore& store) const {
  load_tensors(ctx.stream, cat(path_, "/model.safetensors"), model_tensors(model));
  store.refresh(ctx);
}

void Checkpoint::load_optimizer(Ctx& ctx, optim::ParameterStore& store) const {
  load_tensors(ctx.stream, cat(path_, "/optimizer.safetensors"), moments(store));
}

}  // namespace fovea::train
