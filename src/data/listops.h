#pragma once
// ListOps as a source of labelled examples: generated, or read from files.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"

namespace fovea::data {

// Tokens are the ids of listops_expression.h, labels 0 to 9. Tokens behind the first seq_len are
// cut off. With data.path of listops_files.h: its examples; of a file alone validation is the last
// floor(val_fraction n) of its n. Without: trees of listops_generator.h; the first train_examples
// are for training, the next ones for validation, the last ones the test.
// Throws ConfigError, IoError.
std::unique_ptr<Source> make_listops(const DataConfig& config, int seq_len, Split split,
                                     std::uint64_t seed);

}  // namespace fovea::data
