#pragma once
// A context on the CPU with memory of its own, and short ways to make and read tensors.

#include <span>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"
#include "autograd/tape.h"
#include "autograd/var.h"

namespace fovea::test {

struct Bench {
  Stream stream;
  CachingAllocator memory{memory_source(kCpu)};
  GuardAllocator guarded{memory};
  StepState at;
  Ctx ctx{.device = kCpu, .stream = stream, .activations = guarded, .at = &at, .training = true};

  explicit Bench(int threads = 1, Precision precision = Precision::fp32) : stream(kCpu, threads) {
    ctx.precision = precision;
  }
  Tensor tensor(const std::vector<double>& values, Shape shape, DType dtype = DType::f32) const {
    return Tensor::from(values, shape, dtype);
  }
  // Uniform in [-1, 1), a pure function of the name.
  Tensor drawn(std::string_view name, Shape shape, DType dtype = DType::f32) const {
    const NamedStream draws(0, name);
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values.push_back(2 * draws.uniform(static_cast<std::uint64_t>(i)) - 1);
    }
    return Tensor::from(values, shape, dtype);
  }
  Tensor ids(const std::vector<double>& values, Shape shape) const {
    return Tensor::from(values, shape, DType::i32);
  }
};

// A parameter with a zeroed gradient buffer.
inline Var parameter(const Tensor& value) {
  auto grad = std::make_shared<Grad>();
  grad->is_parameter = true;
  grad->value = Tensor::from(std::vector<double>(static_cast<std::size_t>(value.numel())),
                             value.shape(), acc_of(value.dtype()));
  return Var(value, grad);
}

inline Tensor ones(const Var& like, DType dtype = DType::f32) {
  return Tensor::from(std::vector<double>(static_cast<std::size_t>(like.numel()), 1.0),
                      like.shape(), dtype);
}

inline std::vector<double> gradient(const Var& of) {
  return of.grad()->value.values();
}

}  // namespace fovea::test
