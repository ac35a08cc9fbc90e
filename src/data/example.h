#pragma once
// What a model learns from: one example, and a micro-batch of them on the host.

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace fovea::data {

// A target that is not scored.
constexpr std::int32_t kIgnored = -1;

enum class Split { train, validation, test };
constexpr const char* name_of(Split split) {
  return split == Split::train ? "train" : split == Split::validation ? "validation" : "test";
}

// The model sees tokens[0..t] and is scored on targets[t], of which there are as many, unless that
// is kIgnored. Of a source with classes: the one target is the label of all tokens together.
struct Example {
  std::vector<std::int32_t> tokens, targets;
  // Only of sources with segments: tokens of one document have one segment, counted from 0 in the
  // example, and positions from 0 at its first token there.
  std::vector<std::int32_t> segments, positions;
  std::string group;  // which part of an evaluation's report it counts for; "": none of its own
};

// One micro-batch. Host tensors of B rows; rows shorter than T end in token 0 and kIgnored targets.
struct Batch {
  Tensor tokens;           // i32 [B, T]
  Tensor targets;          // i32 [B, T], token ids; of a source with classes [B, 1], labels
  Tensor positions;        // i32 [B, T]; undefined: 0 .. T-1 in every row
  Tensor weights;          // f32 [B, T]; undefined: 1 for every scored target
  Tensor segments;         // i32 [B, T]; only equal segments see each other; undefined: all do
  Tensor key_valid;        // u8 [B, T], 1 = a token of the row; undefined: nothing needs to know
  std::int64_t index = 0;  // of the micro-batch in its global batch (evaluation: in the split)
  std::int64_t first_sample = 0;    // index of row 0 in the global batch (evaluation: in the split)
  std::int64_t target_tokens = 0;   // scored targets in this micro-batch
  std::int64_t classes = 0;         // targets are labels below it; 0: token ids
  std::vector<std::string> groups;  // Example::group of each row; empty: no row has one
};

// All of them; the order is that in which a batch is hashed and staged.
constexpr Tensor Batch::*kBatchTensors[] = {&Batch::tokens,  &Batch::targets,  &Batch::positions,
                                            &Batch::weights, &Batch::segments, &Batch::key_valid};

}  // namespace fovea::data
