#include <algorithm>

#include "attention/registry.h"
#include "optim/schedule.h"
#include "train/run_config.h"

namespace fovea::train {

std::vector<AttentionKind> registered_attention() {
  std::vector<AttentionKind> kinds;
  kinds.reserve(attention::attention_specs().size());
  for (const attention::AttentionSpec& spec : attention::attention_specs()) {
    kinds.push_back({std::string(spec.name), std::string(spec.alias), spec.options});
  }
  return kinds;
}

bool RunConfig::hangs_on_length() const {
  const auto scheduled = [](const models::ModelConfig::AttentionChoice& choice) {
    const attention::AttentionSpec* const spec = attention::find_attention(choice.kind);
    return spec != nullptr && attention::with_options(*spec, choice.options).caps.scheduled;
  };
  return optim::Schedule::depends_on_max_steps(sched) ||
         std::any_of(model.attention.begin(), model.attention.end(), scheduled);
}

}  // namespace fovea::train
