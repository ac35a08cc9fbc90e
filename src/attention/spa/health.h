#pragma once
// How a learned S fares, and when it has collapsed. Source: spa.md 5.4.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/spa/settings.h"

namespace fovea::attention::spa {

// S's state on the host, of all its matrices one behind the other.
struct LearnedState {
  std::vector<double> w, g;  // [entries]
  std::vector<std::uint8_t> m;
  std::vector<double> u;            // the step's uniform numbers; empty where none are drawn
  std::int64_t rows = 0, cols = 0;  // of one matrix
  double tau = 1;
};

struct Health {
  double density = 0;       // entries of the deterministic S that are not zero
  double unpruned = 0;      // share of entries that pruning leaves
  double expected = 0;      // mean of sigmoid(G), pruned entries 0: the density of drawn masks
  double entropy = 0;       // mean of unpruned masks, nats
  double dead_rows = 0;     // share of features without an entry
  double dead_columns = 0;  // share of columns without one
  double norm = 0;          // of S, Frobenius
  double frozen = 0;        // share of masks whose derivative is below 1e-8
};
Health health_of(const LearnedState& state, const LearnChoice& learn);

// What is wrong, with the numbers and the remedy, or "". `target` is the density that is due. Masks
// whose chances are still those of the start are told apart from those that the penalty has closed;
// pruning is going to take most of their entries, and they are held against what it leaves.
std::string complaint(const Health& health, double target, const LearnChoice& learn);

// Tells a state that lasts from one that passes, as the signs of logits do that have hardly moved:
// once the warm-up and a tenth of the run are over, what is still wrong `lasting` steps after a
// look that found it; and whatever is wrong when the run ends.
class Watch {
 public:
  void look(const nn::Clock& clock, bool wrong, std::int64_t lasting);
  bool alarms() const { return alarms_; }  // at the last look

 private:
  std::optional<std::int64_t> since_;
  bool alarms_ = false;
};

}  // namespace fovea::attention::spa
