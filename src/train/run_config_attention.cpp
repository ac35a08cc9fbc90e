#include "attention/registry.h"
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

}  // namespace fovea::train
