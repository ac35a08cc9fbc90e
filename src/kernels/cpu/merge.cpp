#include "kernels/merge.h"

#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// One row (b, n, h) of a merge.
struct Row {
  std::int64_t b, n, h, at, lse;  // `at`: its first element in o; `lse`: its place in [B,H,N]
};

template <class F>
void for_rows(StreamRef stream, const View& o, F&& fn) {
  const std::int64_t tokens = o.dim[1], heads = o.dim[2], width = o.dim[3];
  parallel_for(stream, o.rows(), grain_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t h = row % heads, n = row / heads % tokens, b = row / heads / tokens;
      fn(Row{b, n, h, row * width, (b * heads + h) * tokens + n});
    }
  });
}

bool takes_own(const MergeAlone& alone, const Row& row) {
  if (!alone.v) return false;
  const View& valid = alone.valid;
  return !valid ||
         valid.ptr<std::uint8_t>()[row.b * valid.stride[0] + row.n * valid.stride[1]] != 0;
}

template <class T>
T* own_row(const View& v, const Row& row) {
  return v.ptr<T>() + row.b * v.stride[0] + row.h * v.stride[1] + row.n * v.stride[2];
}

}  // namespace

void merge_forward(StreamRef stream, const View& o, const View& lse, const MergeParts& parts,
                   const MergeAlone& alone) {
  const std::int64_t width = o.dim[3];
  for_float(o.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    constexpr A kNone = -std::numeric_limits<A>::infinity();
    for_rows(stream, o, [&](const Row& row) {
      T* const out = o.ptr<T>() + row.at;
      A most = kNone, sum = 0;
      for (int p = 0; p < parts.count; ++p) {
        const A part = parts.lse[p].ptr<A>()[row.lse];
        most = part > most ? part : most;
      }
      if (most == kNone) {
        const bool own = takes_own(alone, row);
        lse.ptr<A>()[row.lse] = own ? static_cast<A>(alone.lse) : kNone;
        for (std::int64_t c = 0; c < width; ++c)
          store_one(out + c,
                    own ? load_one(own_row<T>(alone.v, row) + c * alone.v.stride[3]) : A{0});
        return;
      }
      A weights[kMostMerged];
      for (int p = 0; p < parts.count; ++p) {
        weights[p] = std::exp(parts.lse[p].ptr<A>()[row.lse] - most);
        sum += weights[p];
      }
      lse.ptr<A>()[row.lse] = most + std::log(sum);
      for (std::int64_t c = 0; c < width; ++c) {
        A value = 0;
        for (int p = 0; p < parts.count; ++p)
          value += weights[p] / sum * load_one(parts.o[p].ptr<T>() + row.at + c);
        store_one(out + c, value);
      }
    });
  });
}

void merge_backward(StreamRef stream, const MergeParts& into, const View& dv, const View& dout,
                    const View& dlse, const View& lse, const MergeParts& parts,
                    const MergeAlone& alone) {
  const View& like = parts.o[0];
  const std::int64_t width = like.dim[3];
  for_float(like.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    constexpr A kNone = -std::numeric_limits<A>::infinity();
    for_rows(stream, like, [&](const Row& row) {
      const auto d = [&](std::int64_t c) {
        return dout ? load_one(dout.ptr<T>() + row.at + c) : A{0};
      };
      const A total = lse.ptr<A>()[row.lse];
      A weights[kMostMerged], along[kMostMerged], mean = 0;
      bool seen = false;
      for (int p = 0; p < parts.count; ++p) {
        const A part = parts.lse[p].ptr<A>()[row.lse];
        seen = seen || part != kNone;
        weights[p] = part == kNone ? A{0} : std::exp(part - total);
        along[p] = 0;
        for (std::int64_t c = 0; c < width && weights[p] != 0; ++c)
          along[p] += d(c) * load_one(parts.o[p].ptr<T>() + row.at + c);
        mean += weights[p] * along[p];
      }
      const A by_lse = dlse ? dlse.ptr<A>()[row.lse] : A{0};
      for (int p = 0; p < parts.count; ++p) {
        into.lse[p].ptr<A>()[row.lse] =
            weights[p] == 0 ? A{0} : weights[p] * (along[p] - mean + by_lse);
        T* const to = into.o[p].ptr<T>() + row.at;
        for (std::int64_t c = 0; c < width; ++c)
          store_one(to + c, weights[p] * d(c));
      }
      if (!dv) return;
      const bool own = !seen && takes_own(alone, row);
      for (std::int64_t c = 0; c < width; ++c)
        store_one(own_row<T>(dv, row) + c * dv.stride[3], own ? d(c) : A{0});
    });
  });
}

void sum_parts(StreamRef stream, const View& out, const View& x) {
  const std::int64_t parts = x.dim[0], n = x.dim[1];
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, n, grain_rows(parts), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        Compute<T> sum = load_one(x.ptr<T>() + i);
        for (std::int64_t p = 1; p < parts; ++p)
          sum += load_one(x.ptr<T>() + p * n + i);
        store_one(out.ptr<T>() + i, sum);
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
