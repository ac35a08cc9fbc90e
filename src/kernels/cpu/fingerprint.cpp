#include "kernels/fingerprint.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

void fingerprint(StreamRef stream, const View& out, const View& x) {
  const std::int64_t words = x.numel() * (x.dtype == DType::f64 ? 2 : 1);
  const auto* const from = static_cast<const std::uint32_t*>(x.data);
  std::uint64_t sum = 0;
  parallel_for(stream, words, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t part = 0;
    for (std::int64_t i = begin; i < end; ++i)
      part += fingerprint_of(static_cast<std::uint64_t>(i), from[i]);
    __atomic_fetch_add(&sum, part, __ATOMIC_RELAXED);
  });
  *out.ptr<std::int64_t>() = static_cast<std::int64_t>(sum);
}

}  // namespace fovea::cpu::FOVEA_ISA
