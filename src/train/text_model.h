#pragma once
// A language model with its tokenizer, ready to continue texts: what the verb `generate` opens.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"
#include "data/tokenizer/tokenizer.h"
#include "models/decoder.h"
#include "optim/parameter_store.h"
#include "train/import/imported_model.h"
#include "train/run_config.h"

namespace fovea::train {

class TextModel {
 public:
  // `path` as import_model() takes it. A run computes as it was trained where this machine can
  // (usable_here), others in fp32. `device`: else the run's. `tokenizer` as data.tokenizer may be;
  // "": a run's own, else the one beside the model. Threads 0: all cores. Throws CheckpointError;
  // IoError, which says how to name a tokenizer, where none is found; ConfigError for one that has
  // ids the model lacks.
  TextModel(const std::string& path, const std::string& tokenizer, int threads,
            std::optional<DeviceChoice> device = {});
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  const std::string& path() const { return path_; }      // of the checkpoint or foreign model
  const std::string& layout() const { return layout_; }  // ImportedModel::layout
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  models::DecoderLm& model() { return *model_; }
  Ctx& ctx() { return *ctx_; }

  // The ids that a text goes on from: as in training behind what begins a text; the line end that
  // the word tokenizer would add is left out. Of an empty text: what stands between texts (begin or
  // end of text; the line end for words, characters and bytes). Throws IoError for text that the
  // vocabulary cannot express, ConfigError for an empty one where there is nothing to begin with.
  std::vector<std::int32_t> prompt(std::string_view text) const;
  // Whether this id stands between texts, so that a continuation ends before it.
  bool ends_text(std::int32_t id) const;

 private:
  TextModel(const ImportedModel& from, const std::string& tokenizer, int threads,
            std::optional<DeviceChoice> device);

  std::string path_, layout_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CachingAllocator> activations_;
  std::unique_ptr<Ctx> ctx_;
  std::unique_ptr<models::DecoderLm> model_;
  std::unique_ptr<optim::ParameterStore> store_;
};

}  // namespace fovea::train
