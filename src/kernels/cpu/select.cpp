#include "kernels/select.h"

#include <cstring>

#include "core/parallel.h"

namespace fovea::cpu::FOVEA_ISA {

void select_rows(StreamRef stream, const View& out, const View& mask, const View& a,
                 const View& other) {
  const std::int64_t xs = out.dim[1], ys = out.dim[2];
  const std::int64_t bytes = out.dim[3] * size_of(out.dtype);
  const auto stride = [&](int axis) { return mask.dim[axis] == 1 ? 0 : mask.stride[axis]; };
  const std::int64_t by_b = stride(0), by_x = stride(1), by_y = stride(2);
  parallel_for(stream, out.dim[0] * xs * ys, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row / (xs * ys) * by_b + row / ys % xs * by_x + row % ys * by_y;
      const View& from = mask.ptr<std::uint8_t>()[at] != 0 ? a : other;
      char* const to = out.ptr<char>() + row * bytes;
      const auto size = static_cast<std::size_t>(bytes);
      if (from)
        std::memcpy(to, from.ptr<char>() + row * bytes, size);
      else
        std::memset(to, 0, size);
    }
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
