#include "kernels/rope.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Cosines, then sines, of one position's angles: [2, width/2].
template <class A>
void angles_at(A* to, double position, const double* theta, std::int64_t half, double sign) {
  for (std::int64_t t = 0; t < half; ++t) {
    to[t] = static_cast<A>(std::cos(position * theta[t]));
    to[half + t] = static_cast<A>(sign * std::sin(position * theta[t]));
  }
}

template <class T>
void rotate(T* out, const T* x, const Compute<T>* cosine, std::int64_t half, bool interleaved) {
  const Compute<T>* const sine = cosine + half;
  if (interleaved) {
    for (std::int64_t t = 0; t < half; ++t) {
      const auto a = load_one(x + 2 * t), b = load_one(x + 2 * t + 1);
      store_one(out + 2 * t, a * cosine[t] - b * sine[t]);
      store_one(out + 2 * t + 1, a * sine[t] + b * cosine[t]);
    }
    return;
  }
  for_lanes<T>(half, [&](std::int64_t t, auto count) {
    const auto a = take(x + t, count), b = take(x + half + t, count);
    const auto c = take(cosine + t, count), s = take(sine + t, count);
    put(out + t, a * c - b * s, count);
    put(out + half + t, a * s + b * c, count);
  });
}

}  // namespace

void rope_forward(StreamRef stream, const View& out, const View& x, const View& positions,
                  const RopeArgs& args) {
  const std::int64_t batch = x.dim[0], heads = x.dim[1], tokens = x.dim[2], width = x.dim[3],
                     half = args.width / 2;
  const Scratch<double> theta(half);
  for (std::int64_t t = 0; t < half; ++t) {
    theta[t] = std::pow(args.base, -2.0 * static_cast<double>(t) / args.width);
  }
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const std::int64_t places = positions ? batch * tokens : tokens;
    const Scratch<A> angles(places * 2 * half);
    parallel_for(stream, places, grain_rows(32 * half), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t p = positions ? positions.ptr<std::int32_t>()[i] : args.first + i;
        angles_at(angles.data() + i * 2 * half, static_cast<double>(p), theta.data(), half,
                  args.inverse ? -1.0 : 1.0);
      }
    });
    parallel_for(
        stream, batch * heads * tokens, grain_rows(width),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t n = row % tokens, h = row / tokens % heads, b = row / tokens / heads;
            const T* const from = x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + n * x.stride[2];
            T* const to = out.ptr<T>() + row * width;
            rotate(to, from, angles.data() + (positions ? b * tokens + n : n) * 2 * half, half,
                   args.interleaved);
            for (std::int64_t i = 2 * half; i < width; ++i)
              to[i] = from[i];
          }
        });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
