#pragma once
// The comparison of `check attention`; private to it.

#include <map>
#include <span>
#include <string>

#include "core/precision.h"
#include "data/safetensors.h"
#include "train/check_attention.h"

namespace fovea::train {

// The tolerance for `expect` in this precision: the sidecar's, or the default without one.
double check_tolerance(const std::string& expect, Precision precision);

// Compares what was written with the tensors of `expect`. `key_valid` and `query_valid` (u8, may be
// undefined) name the rows that must be exactly zero in o, grad.q, grad.k and grad.v.
std::vector<CheckFileRow> compare_tensors(std::span<const data::NamedTensor> found,
                                          const std::string& expect, double tolerance,
                                          const Tensor& key_valid, const Tensor& query_valid);

}  // namespace fovea::train
