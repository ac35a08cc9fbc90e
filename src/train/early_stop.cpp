#include "train/early_stop.h"

#include <cmath>

namespace fovea::train {

bool EarlyStop::update(double value, std::int64_t step) {
  const bool better =
      std::isfinite(value) &&
      (!best_.any || (larger_is_better_ ? value > best_.value : value < best_.value));
  if (better) {
    best_ = {true, value, step, 0};
  } else {
    ++best_.bad_evals;
  }
  return better;
}

}  // namespace fovea::train
