// Initial values of parameters: a pure function of (seed, path, index).

#include "core/error.h"
#include "core/parallel.h"
#include "nn/module.h"

namespace fovea::nn {

namespace {

constexpr std::int64_t kGrain = 16384;

double value_at(const Init& init, const NamedStream& stream, std::uint64_t index) {
  switch (init.kind) {
    case Init::Kind::zeros:
      return 0;
    case Init::Kind::ones:
      return 1;
    case Init::Kind::constant:
      return init.value;
    case Init::Kind::normal:
      return init.mean + init.value * stream.normal(index);
    case Init::Kind::uniform:
      return init.value * (2 * stream.uniform(index) - 1);
  }
  return 0;
}

template <class T>
void fill_as(T* to, std::int64_t n, const Init& init, const NamedStream& stream,
             StreamRef threads) {
  parallel_for(threads, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = static_cast<float>(value_at(init, stream, static_cast<std::uint64_t>(i)));
    }
  });
}

}  // namespace

double initial_value(const Init& init, std::uint64_t seed, std::string_view path,
                     std::uint64_t index) {
  return static_cast<float>(value_at(init, NamedStream(seed, path), index));
}

void fill_initial(const Tensor& to, const Init& init, std::uint64_t seed, std::string_view path,
                  StreamRef threads) {
  FOVEA_ASSERT(to.device().is_cpu() && to.is_contiguous() && acc_of(to.dtype()) == to.dtype());
  const NamedStream stream(seed, path);
  if (to.dtype() == DType::f64) {
    fill_as(to.data<double>(), to.numel(), init, stream, threads);
  } else {
    fill_as(to.data<float>(), to.numel(), init, stream, threads);
  }
}

}  // namespace fovea::nn
