#pragma once
// Watches one metric over evaluations: which was best, and when to give up.

#include <cstdint>

namespace fovea::train {

// What a checkpoint remembers of it.
struct BestSoFar {
  bool any = false;
  double value = 0;
  std::int64_t step = 0;       // where it was reached
  std::int64_t bad_evals = 0;  // evaluations since then
};

class EarlyStop {
 public:
  // Gives up after `patience` evaluations in a row without improvement; 0: never.
  EarlyStop(int patience, bool larger_is_better)
      : patience_(patience), larger_is_better_(larger_is_better) {}

  // Whether `value` is the best so far. A value that is not finite never is.
  bool update(double value, std::int64_t step);
  bool gives_up() const { return patience_ > 0 && best_.bad_evals >= patience_; }
  const BestSoFar& best() const { return best_; }
  void restore(const BestSoFar& best) { best_ = best; }

 private:
  int patience_;
  bool larger_is_better_;
  BestSoFar best_;
};

}  // namespace fovea::train
