#include "data/source.h"

#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/listops.h"
#include "data/listops_expression.h"
#include "data/markov.h"
#include "data/mix_source.h"
#include "data/mqar.h"
#include "data/niah.h"
#include "data/token_split.h"
#include "data/window_source.h"
#include "data/with_cls.h"

namespace fovea::data {

namespace {

struct Kind {
  const char* name;
  int (*vocab)(const DataConfig&);
  std::unique_ptr<Source> (*make)(const DataConfig&, int seq_len, Split, std::uint64_t seed);
  int classes = 0;  // Source::classes()
};

int token_vocab(const DataConfig& config) {
  return static_cast<int>(data_vocab(config));
}

std::unique_ptr<Source> windows(const DataConfig& config, const std::string& path, int seq_len,
                                Split split, std::uint64_t seed) {
  return std::make_unique<WindowSource>(open_split(config, path, split), seq_len,
                                        split == Split::train ? Cut::shifted : Cut::fixed,
                                        config.pack, seed);
}

// Ids must mean the same in all corpora of a mix.
void require_one_tokenizer(const std::vector<std::unique_ptr<Source>>& sources) {
  const auto fingerprint_of = [](const std::unique_ptr<Source>& source) {
    return static_cast<const WindowSource&>(*source).split().tokenizer_fingerprint;
  };
  for (const auto& source : sources) {
    if (fingerprint_of(source) == fingerprint_of(sources.front())) continue;
    throw ConfigError(cat("data.mix: ", static_cast<const WindowSource&>(*source).split().path,
                          " has another tokenizer (", fingerprint_of(source), ") than ",
                          static_cast<const WindowSource&>(*sources.front()).split().path, " (",
                          fingerprint_of(sources.front()), ")"));
  }
}

std::unique_ptr<Source> make_tokens(const DataConfig& config, int seq_len, Split split,
                                    std::uint64_t seed) {
  if (config.mix.empty()) return windows(config, config.path, seq_len, split, seed);
  std::vector<std::unique_ptr<Source>> sources;
  for (const MixPart& part : config.mix)
    sources.push_back(windows(config, part.path, seq_len, split, seed));
  require_one_tokenizer(sources);
  if (split != Split::train) return std::make_unique<JoinedSource>(std::move(sources));
  std::vector<MixSource::Part> parts;
  for (std::size_t i = 0; i < sources.size(); ++i)
    parts.push_back({std::move(sources[i]), config.mix[i].weight});
  return std::make_unique<MixSource>(std::move(parts), seed);
}

constexpr Kind kKinds[] = {
    {"text", token_vocab, make_tokens},
    {"tokens", token_vocab, make_tokens},
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
    {"listops", [](const DataConfig&) { return listops::kVocabulary; }, make_listops,
     listops::kLabels},
    {"niah", [](const DataConfig& config) { return niah_vocab(config.niah); },
     [](const DataConfig& config, int seq_len, Split split,
        std::uint64_t seed) -> std::unique_ptr<Source> {
       return std::make_unique<NiahSource>(config.niah, NiahSource::Place{.length = seq_len}, split,
                                           seed);
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
  const int own = config.cls ? seq_len - 1 : seq_len;
  if (own < 1)
    throw ConfigError(
        cat("data.seq_len is ", seq_len, ", but must be at least ", config.cls ? 2 : 1));
  auto source = kind.make(config, own, split, seed);
  if (!config.cls) return source;
  FOVEA_ASSERT(kind.classes > 0);
  return std::make_unique<WithCls>(std::move(source), kind.vocab(config));
}

int vocab_size(const DataConfig& config) {
  return find_kind(config.kind).vocab(config) + (config.cls ? 1 : 0);
}

int classes_of(const DataConfig& config) {
  return find_kind(config.kind).classes;
}

std::vector<std::string> source_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds)
    names.emplace_back(kind.name);
  return names;
}

}  // namespace fovea::data
