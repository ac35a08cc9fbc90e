#pragma once
// What rides behind the gradients of a buffer: the loss and the auxiliary terms of its micro-batch,
// so that they are added by the same tree, and behind these what a rank wishes and has loaded, so
// that all ranks learn of it in the same reduction.

#include <array>
#include <cstdint>

#include "core/staging.h"
#include "core/tensor.h"
#include "kernels/optim.h"

namespace fovea::train {

// Elements of the state dtype. A whole block keeps the flat buffers' alignment.
constexpr std::int64_t kTail = 64;
constexpr std::int64_t kLossSlot = 0, kAuxSlot = 1;     // written by the device
constexpr std::int64_t kSignalSlot = 2, kTimeSlot = 3;  // by the host: wishes
constexpr std::int64_t kHashSlot = 4, kTokensSlot = 8;  // integers of four slots
constexpr std::int64_t kUsedSlots = 12;
using TailSums = std::array<double, kUsedSlots>;

// An integer of 64 bits takes four slots of 16 bits each: f32 adds those of up to 256 ranks
// exactly.
void put_integer(TailSums& tail, std::int64_t slot, std::uint64_t value);
// The sum over all ranks, modulo 2^64.
std::uint64_t get_integer(const TailSums& tail, std::int64_t slot);
// Writes the host's slots of `tail` [kTail], f32 or f64.
void stage_tail(Staging& staging, const Tensor& tail, const TailSums& sums);

// What a step sends to the host: its scalars, then the tail in the state dtype.
constexpr std::size_t kResultBytes = sizeof(StepScalars) + sizeof(TailSums);
TailSums tail_of(const void* results, DType dtype);

}  // namespace fovea::train
