#pragma once
// Small configurations for tests.

#include <span>
#include <string>
#include <vector>

#include "config/yaml.h"
#include "train/run_config.h"

namespace fovea::test {

inline constexpr config::Option kSparse[] = {
    {"k", config::Type::integer, "8", "[1, 64]", "Features kept."},
    {"straight_through", config::Type::boolean, "true", "", "Gradient."},
};

// A registry of the test's own, so that it does not change with the methods there are.
inline std::vector<train::AttentionKind> kinds() {
  return {{"dense", "exact", {}}, {"sparse", "", kSparse}};
}

inline train::RunConfig from(const std::string& text,
                             const std::vector<std::string>& overrides = {}) {
  config::Node node = config::parse(text, "a.yaml");
  config::override_with(node, overrides);
  return train::RunConfig::from(node, kinds());
}

// The least that is a valid configuration.
inline train::RunConfig least(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"data.kind=markov", "model.attention=dense"});
  return from("train: {max_steps: 100}\n", overrides);
}

}  // namespace fovea::test
