#include "data/source.h"

#include "core/error.h"
#include "core/text.h"
#include "data/markov.h"
#include "data/mqar.h"
#include "data/text_source.h"

namespace fovea::data {

namespace {

struct Kind {
  const char* name;
  int (*vocab)(const DataConfig&);
  std::unique_ptr<Source> (*make)(const DataConfig&, int seq_len, Split, std::uint64_t seed);
};

int text_vocab(const DataConfig& config) {
  if (config.tokenizer != "byte") {
    throw ConfigError(cat("data.tokenizer is ", config.tokenizer, ", but must be byte"));
  }
  return kByteVocab;
}

std::unique_ptr<Source> make_text(const DataConfig& config, int seq_len, Split split,
                                  std::uint64_t seed) {
  text_vocab(config);
  return std::make_unique<TextSource>(Corpus::load(config.path, split, config.val_fraction),
                                      seq_len, split == Split::train ? Cut::shifted : Cut::fixed,
                                      seed);
}

constexpr Kind kKinds[] = {
    {"text", text_vocab, make_text},
    {"mqar", [](const DataConfig& config) { return config.mqar.vocab; },
     [](const DataConfig& config, int seq_len, Split split,
        std::uint64_t seed) -> std::unique_ptr<Source> {
       return std::make_unique<MqarSource>(config.mqar, seq_len, split, seed);
     }},
    {"markov", [](const DataConfig& config) { return config.markov.vocab; },
     [](const DataConfig& config, int seq_len, Split split,
        std::uint64_t seed) -> std::unique_ptr<Source> {
       return std::make_unique<MarkovSource>(config.markov, seq_len, split, seed);
     }},
};

const Kind& find_kind(const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
  }
  throw ConfigError(
      cat("data.kind is ", name, ", but must be one of ", join(source_kinds(), ", ")));
}

}  // namespace

std::unique_ptr<Source> make_source(const DataConfig& config, int seq_len, Split split,
                                    std::uint64_t seed) {
  const Kind& kind = find_kind(config.kind);
  if (seq_len < 1) throw ConfigError(cat("data.seq_len is ", seq_len, ", but must be at least 1"));
  return kind.make(config, seq_len, split, seed);
}

int vocab_size(const DataConfig& config) {
  return find_kind(config.kind).vocab(config);
}

std::vector<std::string> source_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds)
    names.emplace_back(kind.name);
  return names;
}

}  // namespace fovea::data
