#pragma once
// A method alone, outside any model, with parameters of its own: what checks and benches run.

#include <memory>

#include "attention/registry.h"
#include "core/precision.h"

namespace fovea::attention {

// What it moves has arrived when a call returns: the work of other streams may use it.
class Standalone {
 public:
  // Parameters start at their initial values for seed 1 and paths below "method". Throws
  // ConfigError as make_attention.
  Standalone(const AttentionSpec& spec, AttentionConfig config, const config::Node& options,
             Precision precision, Device device);
  Standalone(const Standalone&) = delete;
  Standalone& operator=(const Standalone&) = delete;

  Attention& method() { return *method_; }
  // Parameters by name, "method." left out.
  std::vector<std::pair<std::string, nn::Parameter*>> parameters();
  // Replaces a parameter's value by one that lies on the CPU. Throws ShapeError.
  void set(nn::Parameter& parameter, const Tensor& value);
  // Gives every parameter a zeroed gradient.
  void want_gradients();

 private:
  Precision precision_;
  Device device_;
  Stream stream_;
  nn::SharedParameters shared_;
  std::unique_ptr<Attention> method_;
};

}  // namespace fovea::attention
