#include "kernels/lsh.h"

#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

bool is_valid(const View& valid, std::int64_t b, std::int64_t n) {
  return !valid || valid.ptr<std::uint8_t>()[b * valid.stride[0] + n * valid.stride[1]] != 0;
}

float fused_multiply(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
double fused_multiply(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

}  // namespace

void count_valid(StreamRef stream, const View& lengths, const View& valid, std::int64_t tokens) {
  parallel_for(stream, lengths.dim[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      std::int32_t count = 0;
      for (std::int64_t n = 0; n < tokens; ++n)
        count += is_valid(valid, b, n) ? 1 : 0;
      lengths.ptr<std::int32_t>()[b] = count;
    }
  });
}

void lsh_buckets(StreamRef stream, const View& bucket, const View& x, const View& rotations,
                 const View& lengths, const View& valid, std::int64_t bucket_size) {
  const std::int64_t batch = x.dim[0], heads = x.dim[1], tokens = x.dim[2], width = x.dim[3],
                     all = rotations.dim[2];
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const std::int64_t rows = bucket.numel();
    parallel_for(stream, rows, grain_rows(width * all), [&](std::int64_t begin, std::int64_t end) {
      Scratch<A> products(all);
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t n = at % tokens, h = at / tokens % heads,
                           b = at / tokens / heads % batch, r = at / tokens / heads / batch;
        std::int32_t& to = bucket.ptr<std::int32_t>()[at];
        to = static_cast<std::int32_t>(2 * all);
        if (!is_valid(valid, b, n)) continue;
        const std::int64_t wanted =
            (lengths.ptr<std::int32_t>()[b] + 2 * bucket_size - 1) / (2 * bucket_size);
        const std::int64_t columns = wanted < 1 ? 1 : wanted < all ? wanted : all;
        for (std::int64_t j = 0; j < columns; ++j)
          products[j] = 0;
        const T* const row = x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + n * x.stride[2];
        for (std::int64_t d = 0; d < width; ++d) {
          const A value = load_one(row + d * x.stride[3]);
          const float* const w = rotations.ptr<float>() + (r * width + d) * all;
          for (std::int64_t j = 0; j < columns; ++j)
            products[j] = fused_multiply(value, static_cast<A>(w[j]), products[j]);
        }
        A best = -std::numeric_limits<A>::infinity();
        to = 0;
        for (std::int64_t j = 0; j < 2 * columns; ++j) {
          const A value = j < columns ? products[j] : -products[j - columns];
          if (!(value > best)) continue;
          best = value;
          to = static_cast<std::int32_t>(j);
        }
      }
    });
  });
}

void sort_by_key(StreamRef stream, const View& order, const View& slot, const View& key,
                 std::int64_t keys) {
  const std::int64_t tokens = key.cols();
  parallel_for(stream, key.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch<std::int32_t> next(keys + 1);
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int32_t* const of = key.ptr<std::int32_t>() + p * tokens;
      std::memset(next.data(), 0, static_cast<std::size_t>(keys + 1) * sizeof(std::int32_t));
      for (std::int64_t n = 0; n < tokens; ++n)
        next[of[n] + 1] += 1;
      for (std::int64_t k = 0; k < keys; ++k)
        next[k + 1] += next[k];
      for (std::int64_t n = 0; n < tokens; ++n) {
        const std::int32_t s = next[of[n]]++;
        order.ptr<std::int32_t>()[p * tokens + s] = static_cast<std::int32_t>(n);
        slot.ptr<std::int32_t>()[p * tokens + n] = s;
      }
    }
  });
}

void lsh_sight(StreamRef stream, const View& list, const View& words, const View& bucket,
               const View& order, const View& slot, const View& lengths, const LshPart& part) {
  const std::int64_t rows = list.dim[0], tiles = list.dim[1], width = list.dim[2],
                     tokens = order.dim[2], heads = rows / lengths.dim[0];
  parallel_for(stream, rows * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t p = at / tiles, t = at % tiles;
      const LshSight sight{part,
                           bucket.ptr<std::int32_t>() + p * tokens,
                           order.ptr<std::int32_t>() + p * tokens,
                           slot.ptr<std::int32_t>() + p * tokens,
                           order.dim[0],
                           rows * tokens,
                           tokens,
                           lengths.ptr<std::int32_t>()[p / heads]};
      std::int64_t first, last;
      sight.tiles(t, first, last);
      for (std::int64_t e = 0; e < width; ++e) {
        const bool listed = first + e < last;
        list.ptr<std::int32_t>()[at * width + e] =
            listed ? static_cast<std::int32_t>(first + e) : -1;
        for (std::int64_t row = 0; row < 64; ++row) {
          words.ptr<std::uint64_t>()[(at * width + e) * 64 + row] =
              listed ? sight.word(t * 64 + row, first + e) : 0;
        }
      }
    }
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
