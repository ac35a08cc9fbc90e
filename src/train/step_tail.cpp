#include "train/step_tail.h"

#include <algorithm>
#include <cstring>

namespace fovea::train {

namespace {

constexpr int kPartsOfInteger = 4, kBitsOfPart = 16;

}  // namespace

void put_integer(TailSums& tail, std::int64_t slot, std::uint64_t value) {
  for (int i = 0; i < kPartsOfInteger; ++i) {
    tail[static_cast<std::size_t>(slot + i)] =
        static_cast<double>((value >> (kBitsOfPart * i)) & 0xFFFFu);
  }
}

std::uint64_t get_integer(const TailSums& tail, std::int64_t slot) {
  std::uint64_t out = 0;
  for (int i = 0; i < kPartsOfInteger; ++i) {
    out += static_cast<std::uint64_t>(tail[static_cast<std::size_t>(slot + i)])
           << (kBitsOfPart * i);
  }
  return out;
}

void stage_tail(Staging& staging, const Tensor& tail, const TailSums& sums) {
  const Tensor to = tail.slice(0, kSignalSlot, kUsedSlots);
  std::array<float, kUsedSlots> narrow{};
  std::transform(sums.begin(), sums.end(), narrow.begin(),
                 [](double v) { return static_cast<float>(v); });
  staging.upload(to.view().data,
                 to.dtype() == DType::f64 ? static_cast<const void*>(sums.data() + kSignalSlot)
                                          : narrow.data() + kSignalSlot,
                 static_cast<std::size_t>(to.bytes()));
}

TailSums tail_of(const void* results, DType dtype) {
  const char* at = static_cast<const char*>(results) + sizeof(StepScalars);
  TailSums out{};
  if (dtype == DType::f64) {
    std::memcpy(out.data(), at, sizeof out);
    return out;
  }
  std::array<float, kUsedSlots> narrow{};
  std::memcpy(narrow.data(), at, sizeof narrow);
  std::copy(narrow.begin(), narrow.end(), out.begin());
  return out;
}

}  // namespace fovea::train
