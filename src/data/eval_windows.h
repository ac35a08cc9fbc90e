#pragma once
// How streams of tokens are cut into windows for evaluation, so that every token is scored once.
// Source: data.md 3.2.

#include <cstdint>
#include <vector>

namespace fovea::data {

struct EvalCut {
  std::int64_t context = 0;  // n: inputs of a window
  std::int64_t stride = 0;   // s in [1, n]: from one window to the next
  bool prefix = false;       // a token that is not the stream's stands before its first one
};

// A stream y of m tokens (the prefix is y[0] if there is one) has the targets y[1] .. y[m-1].
// Window w sees y[ws, ws + n), cut off at y[m-1], which is a target only, and scores those targets
// that no window before it did: n of the first one, s of the others, each behind at least n - s + 1
// tokens. No window crosses the border of two streams.
class EvalWindows {
 public:
  struct Window {
    std::int64_t stream = 0;
    std::int64_t first = 0;    // place of its first input in y
    std::int64_t inputs = 0;   // at least 1
    std::int64_t skipped = 0;  // its first inputs, whose targets have been scored before
    std::int64_t scored() const { return inputs - skipped; }
  };

  // `lengths`: of the streams, without the prefix. Throws ConfigError unless 1 <= s <= n.
  EvalWindows(const std::vector<std::int64_t>& lengths, EvalCut cut);

  const EvalCut& cut() const { return cut_; }
  std::int64_t streams() const { return static_cast<std::int64_t>(pairs_.size()); }
  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }  // windows
  Window at(std::int64_t window) const;                                   // in [0, size())
  std::int64_t targets() const { return targets_; }
  // Tokens that are no target: the first of each stream, unless a prefix stands before it.
  std::int64_t unscored() const { return unscored_; }

 private:
  EvalCut cut_;
  std::vector<std::int64_t> pairs_;  // targets of each stream
  std::vector<std::int64_t> ends_;   // windows up to and with it
  std::int64_t targets_ = 0, unscored_ = 0;
};

}  // namespace fovea::data
