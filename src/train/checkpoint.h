#pragma once
// A checkpoint: a folder that exists whole or not at all.
//   config.json            what the model is made of: task, model.* with each layer's attention,
//                          data.*, tokenizer
//   vocab.json, ...        the tokenizer's files, if it has any (checkpoint_tokenizer.h)
//   model.safetensors      parameters (state dtype) and buffers under their paths
//   optimizer.safetensors  AdamW's moments (checkpoint_moments.h); of a run of 4 processes
//                          optimizer-00001-of-00004.safetensors and so on
//   state.json             RunState
//   manifest.json          hashes of all of these, written last
// However many processes wrote it, any number can read it.

#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "nn/module.h"
#include "optim/parameter_store.h"
#include "train/checkpoint_tokenizer.h"
#include "train/manifest.h"
#include "train/run_config.h"
#include "train/run_state.h"

namespace fovea::train {

// A run of one process writes one checkpoint, and waits: CheckpointWriter::save (whose claim on the
// parent folder holds) and nothing else.
void save_checkpoint(Stream& stream, const std::string& path, nn::Module& model,
                     const optim::ParameterStore& store, const RunState& state,
                     const std::string& config_json,
                     std::span<const data::TokenizerFile> tokenizer = {});

// config.json: what the model is made of, enough to build it again. `tokenizer` may be null.
std::string checkpoint_config(const RunConfig& config, const TokenizerCopy* tokenizer = nullptr);

// Which files are compared with the manifest: all when the checkpoint is opened, or those with
// tensors only when these are loaded, and only those which this process needs. The second is for
// ranks whose rank 0 has done the first: each reads its own share of the disk.
enum class Verify { everything, what_is_read };

class Checkpoint {
 public:
  // Throws CheckpointError naming the file and tensor that is missing, cut or altered.
  explicit Checkpoint(std::string path, Verify verify = Verify::everything);

  const std::string& path() const { return path_; }
  const RunState& state() const { return state_; }
  std::vector<std::string> optimizer_files() const;  // names, in the order of ranks
  // Copies parameters and buffers into the model, whose store must have adopted it; refreshes the
  // compute copies. Matches by path; other float dtypes are converted. Throws CheckpointError that
  // lists every missing, extra and mis-shaped tensor.
  void load_model(Ctx& ctx, nn::Module& model, optim::ParameterStore& store) const;
  // The same for AdamW's moments, those that the store holds.
  void load_optimizer(Ctx& ctx, optim::ParameterStore& store) const;

 private:
  std::string path_;
  Verify verify_;
  std::vector<ManifestFile> files_;
  RunState state_;
};

}  // namespace fovea::train
