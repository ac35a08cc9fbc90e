#pragma once
// `fovea check attention --slopes`: how time and memory of a method grow with the tokens, measured.
// For people: nothing judges it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/registry.h"
#include "core/stream.h"

namespace fovea::study {

struct AttentionSlope {
  std::string kind = {}, form = {};  // "causal" or "bidirectional"
  bool linear = false;               // whether the method says so
  std::vector<std::int64_t> tokens = {};
  std::vector<double> ms = {};          // of a forward and a backward pass
  std::vector<std::size_t> bytes = {};  // the most that they have allocated at once
  double time = 0, memory = 0;          // exponents of growth: least squares of the logarithms
  std::string stopped = {};             // why longer sequences are missing; "" if none are
  bool refused = false;                 // that is why: the method refuses the options
};

// One row a form, of one sample with 4 heads of 64, in f32 on the CPU and bf16 on a GPU: 512 to
// 4096 tokens there, 8192 to 131072 here. What a method refuses is a row that says why.
// Throws ConfigError for options that it does not have.
std::vector<AttentionSlope> attention_slopes(Stream& stream, const attention::AttentionSpec& spec,
                                             const config::Node& options);

std::string json_of(const std::vector<AttentionSlope>& slopes);  // a list
std::string text_of(const std::vector<AttentionSlope>& slopes);

}  // namespace fovea::study
