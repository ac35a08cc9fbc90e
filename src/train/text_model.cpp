#include "train/text_model.h"

#include <optional>

#include "config/yaml.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "data/token_encoder.h"
#include "data/token_split.h"
#include "models/build.h"
#include "train/checkpoint_tokenizer.h"
#include "train/run_config.h"
#include "train/run_state.h"
#include "train/this_machine.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

// How a checkpoint of ours was trained; import_model has verified its bytes.
std::optional<RunConfig> run_of(const ImportedModel& from) {
  const std::string path = cat(from.path, "/state.json");
  if (is_foreign_model(from.path)) return std::nullopt;
  return RunConfig::of_checkpoint(
      config::parse(parse_state(read_file(path), path).config_yaml, path));
}

std::unique_ptr<data::Tokenizer> find_tokenizer(const ImportedModel& from,
                                                const std::optional<RunConfig>& run) {
  constexpr const char* kHelp = "name the model's tokenizer with --tokenizer";
  std::unique_ptr<data::Tokenizer> found;
  try {
    found = tokenizer_of(from.path);
    // A checkpoint from before they had a copy of theirs.
    if (found == nullptr && run) found = data::open_data_tokenizer(run->data);
  } catch (const CheckpointError& e) {
    throw CheckpointError(cat(e.what(), "; ", kHelp));
  } catch (const IoError& e) {
    throw IoError(cat(e.what(), "; ", kHelp));
  }
  if (found == nullptr) throw IoError(cat(from.path, ": has no tokenizer; ", kHelp));
  return found;
}

void check_vocabulary(const data::Tokenizer& tokenizer, const ImportedModel& from) {
  const int model = from.config.vocab_size, ids = tokenizer.vocab_size();
  if (ids > model) {
    throw ConfigError(cat(from.path, ": has ", model, " ids, but its tokenizer (", tokenizer.kind(),
                          ") has ", ids, ": they do not belong together"));
  }
  if (ids < model) {
    log::warn(cat(from.path, ": has ", model, " ids, its tokenizer (", tokenizer.kind(), ") only ",
                  ids, "; the others are never chosen"));
  }
}

bool is_word(const data::Tokenizer& tokenizer) {
  return tokenizer.kind() == "word";
}

}  // namespace

TextModel::TextModel(const std::string& path, const std::string& tokenizer, int threads,
                     std::optional<DeviceChoice> device)
    : TextModel(import_model(path), tokenizer, threads, device) {}

TextModel::TextModel(const ImportedModel& from, const std::string& tokenizer, int threads,
                     std::optional<DeviceChoice> asked)
    : path_(from.path), layout_(from.layout) {
  if (!from.config.causal()) {
    throw ConfigError(cat(from.path, ": is an ", from.config.kind,
                          ", which classifies sequences and cannot continue a text"));
  }
  const std::optional<RunConfig> run = run_of(from);
  tokenizer_ = tokenizer.empty() ? find_tokenizer(from, run) : data::open_tokenizer(tokenizer);
  check_vocabulary(*tokenizer_, from);

  TrainConfig settings = run ? run->train : TrainConfig{};
  settings.threads = threads;
  if (asked) settings.device = *asked;
  settings = usable_here(settings, {.device = asked.has_value()});
  const Device device = device_of(settings);
  stream_ = std::make_unique<Stream>(device, threads_of(settings));
  prepare_products(*stream_, settings);
  activations_ = std::make_unique<CachingAllocator>(memory_source(device));
  ctx_ = std::make_unique<Ctx>(Ctx{device, *stream_, *activations_});
  ctx_->precision = settings.precision;
  ctx_->fuse = !run || run->fuse;
  if (run) ctx_->seed = run->seed;
  model_ = models::build(from.config);
  store_ = std::make_unique<optim::ParameterStore>(*ctx_, *model_, optim::StoreMode::evaluate);
  load_weights(from, *ctx_, *model_, *store_);
}

std::vector<std::int32_t> TextModel::prompt(std::string_view text) const {
  const data::DocumentMarks marks = data::document_marks(*tokenizer_);
  std::vector<std::int32_t> ids;
  if (marks.begin) ids.push_back(*marks.begin);
  tokenizer_->encode_append(text, ids);
  if (is_word(*tokenizer_) && !text.empty() && !text.ends_with('\n')) ids.pop_back();
  if (!ids.empty()) return ids;
  if (marks.end) return {*marks.end};
  try {
    ids = tokenizer_->encode("\n");
  } catch (const IoError&) {
  }
  if (ids.empty()) {
    throw ConfigError(cat(path_, ": needs a prompt, for its tokenizer (", tokenizer_->kind(),
                          ") has neither an end of text nor a line end"));
  }
  return ids;
}

bool TextModel::ends_text(std::int32_t id) const {
  // The word tokenizer's end of text ends every line.
  return id == tokenizer_->begin_of_text() ||
         (!is_word(*tokenizer_) && id == tokenizer_->end_of_text());
}

}  // namespace fovea::train
