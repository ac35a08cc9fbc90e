#pragma once
// What a model learns from: one example, and a micro-batch of them on the host.

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace fovea::data {

// A target that is not scored.
constexpr std::int32_t kIgnored = -1;

enum class Split { train, validation, test };
constexpr const char* name_of(Split split) {
  return split == Split::train ? "train" : split == Split::validation ? "validation" : "test";
}

// Equally long: the model sees tokens[0..t] and is scored on targets[t] unless that is kIgnored.
struct Example {
  std::vector<std::int32_t> tokens, targets;
  // Only of sources with segments: tokens of one document have one segment, counted from 0 in the
  // example, and positions from 0 at its first token there.
  std::vector<std::int32_t> segments, positions;
};

// One micro-batch. Host tensors of B rows; rows shorter than T end in token 0 and kIgnored targets.
struct Batch {
  Tensor tokens, targets;  // i32 [B, T]
  Tensor positions;        // i32 [B, T]; undefined: 0 .. T-1 in every row
  Tensor weights;          // f32 [B, T]; undefined: 1 for every scored target
  Tensor segments;         // i32 [B, T]; only equal segments see each other; undefined: all do
  std::int64_t index = 0;  // of the micro-batch in its global batch (evaluation: in the split)
  std::int64_t first_sample = 0;   // index of row 0 in the global batch (evaluation: in the split)
  std::int64_t target_tokens = 0;  // scored targets in this micro-batch
};

}  // namespace fovea::data
