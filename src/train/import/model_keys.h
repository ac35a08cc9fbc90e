#pragma once
// The keys of a configuration that train.init_from answers.

#include <optional>
#include <string>

#include "config/node.h"
#include "config/option.h"
#include "train/import/imported_model.h"

namespace fovea::train {

// The section `model` of a configuration with the sizes and kinds of this model; every value has
// the place `source`. Not there: what does not belong to the weights (dropout, init_std,
// attention).
config::Node model_keys(const models::ModelConfig& model, const std::string& source);

// The model that a configuration starts from. Nothing if train.init_from is not given, or if every
// key is, data.tokenizer included where texts are read (a resolved configuration: the file may be
// gone by now). Throws CheckpointError.
std::optional<ImportedModel> model_source(const config::Node& given);
// `given` with the keys it leaves open taken from there; a vocab_size of 0 is open. For texts also
// data.tokenizer: the model's own (checkpoint_tokenizer.h), or byte if it has none and 256 ids.
// Throws ConfigError where there is none.
config::Node with_model_of(const ImportedModel& source, const config::Node& given);

// The keys in which the model differs from where its weights come from, a line each:
// "model.n_layer is 4, but train.init_from (PATH) has 2". Not compared: what can change without
// touching a weight, which is the attention method, dropout, and block_size unless positions are
// learned.
struct Disagreement {
  std::string key, what;
};
std::vector<Disagreement> disagreements(const models::ModelConfig& model,
                                        const ImportedModel& source);
// The same, found while a configuration is read.
void check_model_source(const models::ModelConfig& model, const ImportedModel& source,
                        const config::Node& given, config::Findings& findings);

}  // namespace fovea::train
