#pragma once
// A checkpoint: a folder that exists whole or not at all.
//   config.json            what the model is made of: task, model.* with each layer's attention,
//                          data.*, tokenizer
//   vocab.json, ...        the tokenizer's files, if it has any (checkpoint_tokenizer.h)
//   model.safetensors      parameters (state dtype) and buffers under their paths
//   optimizer.safetensors  "first/<path>", "second/<path>": AdamW's moments
//   state.json             RunState
//   manifest.json          hashes of all of these, written last

#include <span>
#include <string>

#include "core/stream.h"
#include "nn/module.h"
#include "optim/parameter_store.h"
#include "train/checkpoint_tokenizer.h"
#include "train/run_config.h"
#include "train/run_state.h"

namespace fovea::train {

// Writes the folder under a temporary name, brings it to the disk and renames it to `path`
// (replacing an older one of that name). Throws IoError and leaves nothing behind if the disk is
// full. `tokenizer`: further files, none of which has the name of one above.
void save_checkpoint(Stream& stream, const std::string& path, nn::Module& model,
                     const optim::ParameterStore& store, const RunState& state,
                     const std::string& config_json,
                     std::span<const data::TokenizerFile> tokenizer = {});

// config.json: what the model is made of, enough to build it again. `tokenizer` may be null.
std::string checkpoint_config(const RunConfig& config, const TokenizerCopy* tokenizer = nullptr);

class Checkpoint {
 public:
  // Reads and verifies every byte. Throws CheckpointError naming the file and tensor that is
  // missing, cut or altered.
  explicit Checkpoint(std::string path);

  const std::string& path() const { return path_; }
  const RunState& state() const { return state_; }
  // Copies parameters and buffers into the model, whose store must have adopted it; refreshes the
  // compute copies. Matches by path; other float dtypes are converted. Throws CheckpointError that
  // lists every missing, extra and mis-shaped tensor.
  void load_model(Ctx& ctx, nn::Module& model, optim::ParameterStore& store) const;
  // The same for AdamW's moments.
  void load_optimizer(Ctx& ctx, optim::ParameterStore& store) const;

 private:
  std::string path_;
  RunState state_;
};

}  // namespace fovea::train
