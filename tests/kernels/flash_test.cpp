#include "kernels/flash.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"
#include "core/tensor.h"
#include "kernels/attention_reference.h"

using namespace fovea;

namespace {

struct Sizes {
  std::int64_t b = 2, h = 4, hk = 2, n = 70, m = 70, d = 16, dv = 24;
};

Tensor random_tensor(Shape shape, const std::string& name, DType dtype = DType::f32,
                     double size = 1) {
  const NamedStream stream(7, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = size * stream.normal(i);
  return Tensor::from(values, shape, dtype);
}

Tensor mask_tensor(Shape shape, DType dtype, const std::vector<double>& values) {
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

// Largest difference relative to the largest value; infinite if infinities or NaN disagree.
double distance(const Tensor& a, const Tensor& b) {
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

bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

void check_flash_equals_reference(Problem& tiled, double bound) {
  Problem reference = tiled;
  tiled.run_flash();
  reference.run_reference();
  const std::vector<Tensor> a = tiled.results(), b = reference.results();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(a[i], b[i]) <= bound);
  }
}

// Right-padded samples and, in the first, a hidden token in the middle.
std::vector<double> padding(std::int64_t b, std::int64_t n) {
  std::vector<double> valid;
  for (std::int64_t s = 0; s < b; ++s) {
    for (std::int64_t j = 0; j < n; ++j)
      valid.push_back(s == 0 ? j != n / 3 : j < n - 3 * s);
  }
  return valid;
}

}  // namespace

TEST_CASE("tiled attention equals the materialised one for every mask, f32 and f64") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double bound = dtype == DType::f64 ? 1e-12 : 1e-5;
    for (const bool causal : {false, true}) {
      for (const Sizes s : {Sizes{}, Sizes{1, 2, 1, 1, 9, 8, 8}, Sizes{2, 2, 2, 129, 65, 7, 5},
                            Sizes{1, 3, 3, 33, 200, 20, 64}}) {
        CAPTURE(name_of(dtype));
        CAPTURE(causal);
        CAPTURE(s.n);
        Problem plain(s, dtype);
        plain.how.causal = causal;
        check_flash_equals_reference(plain, bound);

        Problem padded(s, dtype);
        padded.how.causal = causal;
        const Tensor keys = mask_tensor({s.b, s.m}, DType::u8, padding(s.b, s.m));
        const Tensor queries = mask_tensor({s.b, s.n}, DType::u8, padding(s.b, s.n));
        padded.how.key_valid = keys.view();
        padded.how.query_valid = queries.view();
        check_flash_equals_reference(padded, bound);

        Problem busy(s, dtype);  // segments, bias, slopes and dropout at once
        busy.how.causal = causal;
        std::vector<double> query_segments, key_segments, slopes;
        for (std::int64_t i = 0; i < s.b * s.n; ++i)
          query_segments.push_back(i % s.n / 50);
        for (std::int64_t j = 0; j < s.b * s.m; ++j)
          key_segments.push_back(j % s.m / 40);
        for (std::int64_t h = 0; h < s.h; ++h)
          slopes.push_back(std::pow(0.5, h + 1));
        const Tensor qs = mask_tensor({s.b, s.n}, DType::i32, query_segments);
        const Tensor ks = mask_tensor({s.b, s.m}, DType::i32, key_segments);
        const Tensor alibi = mask_tensor({s.h}, acc_of(dtype), slopes);
        busy.how.query_segments = qs.view();
        busy.how.key_segments = ks.view();
        busy.how.alibi_slopes = alibi.view();
        busy.how.dropout = 0.2;
        busy.how.dropout_key = {11, 12, nullptr};
        for (const Shape shape : {Shape{1, 1, s.n, s.m}, Shape{1, s.h, s.n, s.m},
                                  Shape{s.b, 1, s.n, s.m}, Shape{s.b, s.h, s.n, s.m}}) {
          busy.bias = random_tensor(shape, "bias", dtype);
          check_flash_equals_reference(busy, bound);
        }
      }
    }
  }
}

TEST_CASE("tiled attention stays within 1e-5 of the materialised one at 2000 tokens") {
  Problem tiled({1, 1, 1, 2000, 2000, 64, 64});
  tiled.how.causal = true;
  check_flash_equals_reference(tiled, 1e-5);
}

TEST_CASE("16-bit inputs stay within 2e-2 of f64 on the same rounded inputs") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Sizes s;
    Problem narrow(s, dtype), wide(s, DType::f64);
    Stream stream(kCpu);
    for (const auto& [from, to] :
         {std::pair(&narrow.q, &wide.q), std::pair(&narrow.k, &wide.k),
          std::pair(&narrow.v, &wide.v), std::pair(&narrow.dout, &wide.dout),
          std::pair(&narrow.dlse, &wide.dlse)}) {
      copy_host(to->view(), from->view());
    }
    narrow.run_flash();
    wide.run_reference();
    for (std::size_t i = 0; i < wide.results().size(); ++i)
      CHECK(distance(narrow.results()[i], wide.results()[i]) <= 2e-2);
  }
}

TEST_CASE("the reference's gradients are the central differences of its values") {
  const Sizes s{1, 2, 1, 3, 4, 3, 2};
  Problem x(s, DType::f64);
  x.how.causal = true;
  x.how.dropout = 0.3;
  x.how.dropout_key = {5, 6, nullptr};
  x.bias = random_tensor({1, 2, 3, 4}, "bias", DType::f64);
  x.run_reference();
  const std::vector<Tensor> inputs = {x.q, x.k, x.v, x.bias},
                            gradients = {x.dq, x.dk, x.dv, x.dbias};
  Problem moved = x;
  const auto loss = [&] {
    moved.run_reference();
    double sum = 0;
    const auto o = moved.o.values(), dout = x.dout.values(), lse = moved.lse.values(),
               dlse = x.dlse.values();
    for (std::size_t i = 0; i < o.size(); ++i)
      sum += o[i] * dout[i];
    for (std::size_t i = 0; i < lse.size(); ++i)
      sum += lse[i] * dlse[i];
    return sum;
  };
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const std::vector<double> analytic = gradients[t].values();
    for (std::int64_t e = 0; e < inputs[t].numel(); ++e) {
      double* at = inputs[t].data<double>() + e;  // shared with `moved`
      const double value = *at, step = 1e-5;
      *at = value + step;
      const double above = loss();
      *at = value - step;
      const double below = loss();
      *at = value;
      CHECK(std::fabs((above - below) / (2 * step) - analytic[static_cast<std::size_t>(e)]) <=
            1e-8);
    }
  }
}

TEST_CASE("results do not depend on the number of threads") {
  Problem one(Sizes{2, 4, 2, 130, 130, 16, 16});
  one.how.causal = true;
  one.bias = random_tensor({1, 4, 130, 130}, "bias");
  Problem three = one;
  three.threads = 3;
  one.run_flash();
  three.run_flash();
  for (std::size_t i = 0; i < one.results().size(); ++i)
    CHECK(same_bits(one.results()[i], three.results()[i]));
}

TEST_CASE(
    "later tokens change no bit of an earlier causal row, and a decoded row equals its row of a "
    "full pass") {
  const Sizes s{1, 2, 1, 150, 150, 16, 16};
  Problem full(s);
  full.how.causal = true;
  full.run_flash();
  for (const std::int64_t row : {0, 1, 63, 64, 99, 149}) {
    CAPTURE(row);
    Problem one(s);
    one.how.causal = true;
    one.q = full.q.slice(2, row, row + 1);
    one.k = full.k.slice(2, 0, row + 1);
    one.v = full.v.slice(2, 0, row + 1);
    one.dout = full.dout.slice(2, row, row + 1);
    one.dlse = mask_tensor({1, 2, 1}, DType::f32, {0, 0});
    one.run_flash();
    CHECK(same_bits(one.o, full.o.slice(2, row, row + 1)));
    CHECK(same_bits(one.lse, full.lse.slice(2, row, row + 1)));
  }
}

TEST_CASE("what hidden tokens hold has no effect, NaN included, and padding changes no bit") {
  const Sizes s{1, 2, 1, 70, 70, 16, 16};
  Problem alone(s);
  alone.how.causal = false;
  alone.run_flash();
  // The same tokens followed by 70 hidden ones that hold NaN.
  Problem padded(Sizes{1, 2, 1, 140, 140, 16, 16});
  for (const auto& [to, from] :
       {std::pair(&padded.q, &alone.q), std::pair(&padded.k, &alone.k),
        std::pair(&padded.v, &alone.v), std::pair(&padded.dout, &alone.dout),
        std::pair(&padded.dlse, &alone.dlse)}) {
    float* data = to->data<float>();
    for (std::int64_t i = 0; i < to->numel(); ++i)
      data[i] = std::numeric_limits<float>::quiet_NaN();
    copy_host(to->slice(2, 0, 70).view(), from->view());
  }
  std::vector<double> valid(140, 0.0);
  for (std::size_t j = 0; j < 70; ++j)
    valid[j] = 1;
  const Tensor mask = mask_tensor({1, 140}, DType::u8, valid);
  padded.how.key_valid = padded.how.query_valid = mask.view();
  padded.run_flash();
  for (std::size_t i = 0; i < alone.results().size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(padded.results()[i].slice(2, 0, 70), alone.results()[i]));
    for (const double value : padded.results()[i].slice(2, 70, 140).values()) {
      CHECK(value == (i == 1 ? -std::numeric_limits<double>::infinity() : 0.0));
    }
  }
}

TEST_CASE("values of one make rows of one, and one visible key is copied exactly") {
  Problem x({1, 1, 1, 100, 100, 8, 8});
  x.how.causal = true;
  for (std::int64_t i = 0; i < x.v.numel(); ++i)
    x.v.data<float>()[i] = 1;
  x.run_flash();
  for (const double value : x.o.values())
    CHECK(std::fabs(value - 1) <= 1e-6);
  Problem y({1, 1, 1, 100, 100, 8, 8});
  y.how.causal = true;
  y.run_flash();
  CHECK(same_bits(y.o.slice(2, 0, 1), y.v.slice(2, 0, 1)));
}

TEST_CASE(
    "zero keys give the mean of the visible values, and a constant added to all keys changes "
    "nothing") {
  Problem x({1, 1, 1, 80, 80, 8, 4});
  std::memset(x.k.data<float>(), 0, static_cast<std::size_t>(x.k.bytes()));
  x.run_flash();
  const std::vector<double> v = x.v.values(), o = x.o.values();
  for (std::size_t c = 0; c < 4; ++c) {
    double mean = 0;
    for (std::size_t j = 0; j < 80; ++j)
      mean += v[j * 4 + c] / 80;
    for (std::size_t i = 0; i < 80; ++i)
      CHECK(std::fabs(o[i * 4 + c] - mean) <= 1e-6);
  }
  Problem a({1, 1, 1, 80, 80, 8, 4});
  Problem b = a;
  b.k = random_tensor({1, 1, 80, 8}, "k");
  for (std::int64_t i = 0; i < b.k.numel(); ++i)
    b.k.data<float>()[i] += 0.5f * static_cast<float>(i % 8);
  a.run_flash();
  b.run_flash();
  CHECK(distance(a.o, b.o) <= 1e-5);
}

TEST_CASE("large scores stay finite, forward and backward") {
  Problem x({1, 2, 2, 90, 90, 64, 64}, DType::f32, 30);
  x.run_flash();
  for (const Tensor& result : x.results()) {
    for (const double value : result.values())
      CHECK(std::isfinite(value));
  }
}

TEST_CASE("strided views give the bits of contiguous ones") {
  const Sizes s{2, 2, 2, 70, 70, 16, 16};
  Problem flat(s);
  Problem strided = flat;
  // One packed [B,N,3,H,D] product, cut into views.
  const Tensor packed = Tensor::empty({2, 70, 3, 2, 16}, DType::f32, kCpu);
  Tensor* views[] = {&strided.q, &strided.k, &strided.v};
  for (int part = 0; part < 3; ++part) {
    Tensor cut = packed.slice(2, part, part + 1).permute({0, 3, 1, 2, 4});  // [B,H,N,1,D]
    View view = cut.view();
    view.dim[3] = view.dim[4];
    view.stride[3] = view.stride[4];
    view.rank = 4;
    copy_host(view, views[part]->view());
  }
  flat.run_flash();
  strided.allocate();
  Stream stream(kCpu);
  const auto head_view = [&](int part) {
    View view = packed.slice(2, part, part + 1).permute({0, 3, 1, 2, 4}).view();
    view.dim[3] = view.dim[4];
    view.stride[3] = view.stride[4];
    view.rank = 4;
    return view;
  };
  cpu::flash_forward(stream.ref(), strided.o.view(), strided.lse.view(), head_view(0), head_view(1),
                     head_view(2), strided.how);
  cpu::flash_backward(stream.ref(), strided.gradients(), strided.dout.view(), strided.dlse.view(),
                      head_view(0), head_view(1), head_view(2), strided.o.view(),
                      strided.lse.view(), strided.how);
  for (std::size_t i = 0; i < flat.results().size(); ++i)
    CHECK(same_bits(flat.results()[i], strided.results()[i]));
}

TEST_CASE("dropout follows the global sample, not the place in the micro-batch") {
  const Sizes s{2, 2, 2, 70, 70, 8, 8};
  Problem both(s);
  both.how.dropout = 0.25;
  const StepState start{3, 0}, second{3, 1};
  both.how.dropout_key = {1, 2, &start};
  both.run_flash();
  Problem one(Sizes{1, 2, 2, 70, 70, 8, 8});
  one.how = both.how;
  one.how.dropout_key.at = &second;
  one.q = both.q.slice(0, 1, 2);
  one.k = both.k.slice(0, 1, 2);
  one.v = both.v.slice(0, 1, 2);
  one.dout = both.dout.slice(0, 1, 2);
  one.dlse = both.dlse.slice(0, 1, 2);
  one.run_flash();
  CHECK(same_bits(one.o, both.o.slice(0, 1, 2)));
  CHECK(same_bits(one.dk, both.dk.slice(0, 1, 2)));
}

TEST_CASE("meta counts the useful FLOPs of visible pairs") {
  Stream stream(kMeta);
  const Tensor q = Tensor::empty({2, 4, 8, 16}, DType::f32, kMeta),
               k = Tensor::empty({2, 2, 8, 16}, DType::f32, kMeta);
  const Tensor v = Tensor::empty({2, 2, 8, 24}, DType::f32, kMeta),
               o = Tensor::empty({2, 4, 8, 24}, DType::f32, kMeta);
  AttentionScores how;
  meta::flash_forward(stream.ref(), o.view(), View{}, q.view(), k.view(), v.view(), how);
  CHECK(stream.cost().flops == 2.0 * 2 * 4 * 64 * (16 + 24));
  stream.cost().flops = 0;
  how.causal = true;
  meta::flash_backward(stream.ref(), {}, o.view(), View{}, q.view(), k.view(), v.view(), o.view(),
                       View{}, how);
  CHECK(stream.cost().flops == 2.0 * 2 * 4 * 36 * (3 * 16 + 2 * 24));
}
