#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/sparse.h"
#include "core/random.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::real;

// `in` rows of S, each entry nonzero with probability `kept`: eighths, which every dtype holds.
Tensor draw(std::int64_t in, std::int64_t out, double kept) {
  const NamedStream stream(0, "op case sparse_linear");
  std::vector<double> values(static_cast<std::size_t>(in * out));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double size = 0.125 * static_cast<double>(1 + stream.below(3 * i, 8));
    if (stream.uniform(3 * i + 1) < kept)
      values[i] = stream.below(3 * i + 2, 2) == 0 ? size : -size;
  }
  return Tensor::from(values, {in, out}, DType::f64);
}

OpCase sparse_case(std::string name, Shape x, std::int64_t out, double kept) {
  const std::int64_t in = x.cols();
  const Tensor dense = draw(in, out, kept);
  double entries = 0;
  for (const double value : dense.values())
    entries += value != 0 ? 1 : 0;
  return {.name = std::move(name),
          .inputs = {real(x)},
          .run =
              [dense](Ctx& c, Inputs inputs) {
                const SparseMatrix s = compress(c.stream, dense, c.compute());
                return std::vector{sparse_linear(c, inputs[0], s)};
              },
          .composition =
              [dense, in, out](Ctx& c, Inputs inputs) {
                const Tensor w = Tensor::empty({out, in}, c.compute(), kCpu, "case");
                copy_host(w.view(), dense.permute({1, 0}).view());
                return std::vector{linear(c, inputs[0], Var(w.to(c.device, c.stream)), {})};
              },
          .flops = 2 * static_cast<double>(x.rows()) * entries};
}

std::vector<OpCase> sparse_linear_cases() {
  return {
      sparse_case("a head of 64 to 32, 80 % zeros", {2, 67, 64}, 32, 0.2),
      sparse_case("odd sizes", {5, 13}, 7, 0.3),
      sparse_case("wider than it was, 95 % zeros, with empty rows", {33, 24}, 40, 0.05),
      sparse_case("no zeros", {3, 8}, 4, 1),
      sparse_case("zeros only", {4, 6}, 3, 0),
      sparse_case("one row", {48}, 16, 0.1),
  };
}

}  // namespace

OpList sparse_ops();
OpList sparse_ops() {
  return {
      {"sparse_linear", "x S for a fixed sparse S", "src/autograd/ops/sparse.h",
       "src/autograd/ops/sparse.cpp", "src/kernels/spmm.h", "src/kernels/cpu/spmm.cpp",
       "src/kernels/cuda/spmm.cpp", sparse_linear_cases},
  };
}

}  // namespace fovea
