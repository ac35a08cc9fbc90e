#pragma once
// The tokenizer that belongs to a model: the copy beside a checkpoint's weights, or the files that
// other programs put there.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "train/run_config.h"

namespace fovea::train {

// What a checkpoint keeps of its tokenizer.
struct TokenizerCopy {
  std::string kind, fingerprint;  // as Tokenizer has them
  std::int64_t vocab = 0;
  std::vector<data::TokenizerFile> files;  // lie in the checkpoint's folder; bytes have none
};
TokenizerCopy copy_of(const data::Tokenizer& tokenizer);
// The object `tokenizer` of a checkpoint's config.json.
std::string tokenizer_json(const TokenizerCopy& copy);

// The copy that the checkpoints of a run get: that of the checkpoint it goes on from (`from`; "" if
// there is none), else of the data's tokenizer, else, for token files that do not tell theirs, of
// train.init_from's. Nothing where there is no text or its tokenizer is not known. Throws
// ConfigError, IoError, CheckpointError.
std::optional<TokenizerCopy> tokenizer_of_run(const RunConfig& config, const std::string& from);

// What data.tokenizer has to be to mean the model's own tokenizer: "byte", or a folder or file.
// `model` is a run folder, a checkpoint, or a model of another program (import/imported_model.h):
// a Hugging Face folder with tokenizer files, or a llama2.c .bin with tokenizer.bin, or the only
// tok*.bin, beside it. "" if it has none. Throws CheckpointError.
std::string tokenizer_name_of(const std::string& model);

// That tokenizer; null if there is none. A checkpoint needs nothing but its own folder. Throws
// CheckpointError, also if a checkpoint's is not the one that it was trained with.
std::unique_ptr<data::Tokenizer> tokenizer_of(const std::string& model,
                                              const data::TokenizerOptions& options = {});

}  // namespace fovea::train
