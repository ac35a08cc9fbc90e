#pragma once
// A source of examples, addressed by number: nothing is iterated, so nothing has to be resumed.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/example.h"
#include "data/text_counts.h"

namespace fovea::data {

class Source {
 public:
  virtual ~Source() = default;
  virtual std::int64_t size() const = 0;  // examples in an epoch, at least 1
  virtual int seq_len() const = 0;        // no example has more tokens
  // Fills example i, in [0, size()). A pure function of the source, i and the epoch, safe from
  // several threads. Only a source that varies between epochs (the cuts of a text) looks at
  // `epoch`.
  virtual void get(std::int64_t i, std::int64_t epoch, Example& example) const = 0;
  // Scored targets of that example: what counting them in get() would give, only cheaper.
  virtual std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const = 0;
  // One line for the log: what there is and what was done to it.
  virtual std::string summary() const = 0;
  // 16 hexadecimal digits that change with any token of any example, though not with how examples
  // are cut, shuffled or mixed beyond data.*: whether a resumed run sees the data it began with.
  virtual std::string fingerprint() const = 0;
  // 0: targets are token ids, one a token. Else every example has one target, a label below it.
  virtual int classes() const { return 0; }
  // Whether a model has to be told which tokens are an example's, and which fill its row up. (A
  // causal one never sees them.)
  virtual bool is_padded() const { return classes() > 0; }
  // Answers of a source with classes that need no model, and how many of the first `examples` each
  // gets right: what an accuracy has to be compared with.
  struct Guess {
    std::string name;  // "always_0"
    std::int64_t correct = 0;
  };
  virtual std::vector<Guess> guesses(std::int64_t /*examples*/) const { return {}; }
  // Whether examples have segments and positions.
  virtual bool has_segments() const { return false; }
  // How much text the whole split is; nothing where there is no text or nobody counted.
  virtual std::optional<TextCounts> counts() const { return std::nullopt; }
};

// Throws ConfigError for settings that no data can meet, IoError for files that are missing or
// unfit. `seq_len` is the number of tokens the model sees; `seed` the run's. Of a mix, training
// draws by weight (mix_source.h); the held-out splits of its corpora come one behind the other.
std::unique_ptr<Source> make_source(const DataConfig& config, int seq_len, Split split,
                                    std::uint64_t seed);

// Token ids lie in [0, vocab_size). May read the data: a tokenizer's files, or the text its
// vocabulary is made of. Throws ConfigError for an unknown kind, IoError.
int vocab_size(const DataConfig& config);
// Source::classes() of that kind. Throws ConfigError for an unknown kind.
int classes_of(const DataConfig& config);

// The values of data.kind.
std::vector<std::string> source_kinds();

}  // namespace fovea::data
