#include "kernels/move_tokens.h"

#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Element by element of a type of that size.
template <class T>
void move_as(StreamRef stream, const View& to, const View& from, std::int64_t first, bool reversed,
             T rest) {
  const std::int64_t heads = to.dim[1], tokens = to.dim[2], cols = to.dim[3];
  const std::int64_t other = from.dim[2], n = tokens < other ? tokens : other;
  parallel_for(stream, to.dim[0] * heads * tokens, grain_rows(cols),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t t = row % tokens, b = row / tokens / heads,
                                      h = row / tokens % heads;
                   // The token of the shorter side that this is, and where it comes from.
                   const std::int64_t mine = tokens > other ? t - first : t;
                   const std::int64_t turned = reversed ? n - 1 - mine : mine;
                   const std::int64_t at = tokens > other ? turned : first + turned;
                   T* out = to.ptr<T>() + row * cols;
                   const T* in = from.ptr<T>() + b * from.stride[0] + h * from.stride[1] +
                                 at * from.stride[2];
                   for (std::int64_t c = 0; c < cols; ++c)
                     out[c] = mine >= 0 && mine < n ? in[c * from.stride[3]] : rest;
                 }
               });
}

}  // namespace

void move_tokens(StreamRef stream, const View& to, const View& from, std::int64_t first,
                 bool reversed, double rest) {
  switch (to.dtype) {
    case DType::f64:
      return move_as<double>(stream, to, from, first, reversed, rest);
    case DType::f32:
      return move_as<float>(stream, to, from, first, reversed, static_cast<float>(rest));
    case DType::bf16:
      return move_as<BFloat16>(stream, to, from, first, reversed,
                               BFloat16(static_cast<float>(rest)));
    case DType::f16:
      return move_as<Half>(stream, to, from, first, reversed, Half(static_cast<float>(rest)));
    case DType::i64:
      return move_as<std::int64_t>(stream, to, from, first, reversed,
                                   static_cast<std::int64_t>(rest));
    case DType::i32:
      return move_as<std::int32_t>(stream, to, from, first, reversed,
                                   static_cast<std::int32_t>(rest));
    case DType::u8:
      return move_as<std::uint8_t>(stream, to, from, first, reversed,
                                   static_cast<std::uint8_t>(rest));
  }
}

}  // namespace fovea::cpu::FOVEA_ISA
