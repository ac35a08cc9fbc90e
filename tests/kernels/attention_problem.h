#pragma once
// One attention problem, and everything the tiled and the materialised kernels make of it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"
#include "kernels/attention_reference.h"
#include "kernels/flash.h"

namespace fovea::test {

struct Sizes {
  std::int64_t b = 2, h = 4, hk = 2, n = 70, m = 70, d = 16, dv = 24;
};

inline Tensor random_tensor(Shape shape, const std::string& name, DType dtype = DType::f32,
                            double size = 1) {
  const NamedStream stream(7, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = size * stream.normal(i);
  return Tensor::from(values, shape, dtype);
}

inline Tensor mask_tensor(Shape shape, DType dtype, const std::vector<double>& values) {
  return Tensor::from(values, shape, dtype);
}

// One problem: inputs, and everything both kernels make of them.
struct Problem {
  Tensor q, k, v, dout, dlse, bias;
  AttentionScores how;
  Tensor o, lse, p, dq, dk, dv, dbias;
  int threads = 1;

  explicit Problem(const Sizes& s, DType dtype = DType::f32, double size = 1)
      : q(random_tensor({s.b, s.h, s.n, s.d}, "q", dtype, size)),
        k(random_tensor({s.b, s.hk, s.m, s.d}, "k", dtype, size)),
        v(random_tensor({s.b, s.hk, s.m, s.dv}, "v", dtype)),
        dout(random_tensor({s.b, s.h, s.n, s.dv}, "do", dtype)),
        dlse(random_tensor({s.b, s.h, s.n}, "dlse", acc_of(dtype))) {
    how.scale = 1 / std::sqrt(static_cast<double>(s.d));
  }

  void allocate() {
    const DType acc = acc_of(q.dtype());
    o = Tensor::empty(dout.shape(), q.dtype(), kCpu);
    lse = Tensor::empty(dlse.shape(), acc, kCpu);
    dq = Tensor::empty(q.shape(), q.dtype(), kCpu);
    dk = Tensor::empty(k.shape(), q.dtype(), kCpu);
    dv = Tensor::empty(v.shape(), q.dtype(), kCpu);
    if (bias.defined()) dbias = Tensor::empty(bias.shape(), acc, kCpu);
    how.bias = bias.view();
  }
  AttentionGradients gradients() const { return {dq.view(), dk.view(), dv.view(), dbias.view()}; }
  void run_flash() {
    allocate();
    Stream stream(kCpu, threads);
    cpu::flash_forward(stream.ref(), o.view(), lse.view(), q.view(), k.view(), v.view(), how);
    cpu::flash_backward(stream.ref(), gradients(), dout.view(), dlse.view(), q.view(), k.view(),
                        v.view(), o.view(), lse.view(), how);
  }
  void run_reference() {
    allocate();
    Stream stream(kCpu, threads);
    p = Tensor::empty({q.size(0), q.size(1), q.size(2), k.size(2)}, acc_of(q.dtype()), kCpu);
    cpu::attention_reference_forward(stream.ref(), o.view(), lse.view(), p.view(), q.view(),
                                     k.view(), v.view(), how);
    cpu::attention_reference_backward(stream.ref(), gradients(), dout.view(), dlse.view(), p.view(),
                                      q.view(), k.view(), v.view(), how);
  }
  std::vector<Tensor> results() const {
    std::vector<Tensor> out = {o, lse, dq, dk, dv};
    if (dbias.defined()) out.push_back(dbias);
    return out;
  }
};

// Query `row` of a causal problem over the keys up to it, as a step of decoding has it, with no
// gradient of its log-sum-exp.
inline Problem decoding_step(const Problem& full, std::int64_t row) {
  Problem one = full;
  one.q = full.q.slice(2, row, row + 1);
  one.k = full.k.slice(2, 0, row + 1);
  one.v = full.v.slice(2, 0, row + 1);
  one.dout = full.dout.slice(2, row, row + 1);
  const Shape rows{one.q.size(0), one.q.size(1), 1};
  one.dlse = mask_tensor(rows, full.dlse.dtype(),
                         std::vector<double>(static_cast<std::size_t>(rows.numel()), 0.0));
  return one;
}

// Largest difference relative to the largest value; infinite if infinities or NaN disagree.
inline double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  double error = 0, size = 1e-2;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;
    const double difference = std::fabs(x[i] - y[i]);
    if (!(difference < std::numeric_limits<double>::infinity()))
      return std::numeric_limits<double>::infinity();
    error = std::max(error, difference);
    size = std::max(size, std::fabs(y[i]));
  }
  return error / size;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

}  // namespace fovea::test
