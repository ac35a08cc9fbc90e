// Tiled attention against the materialised one, and what its outputs must be.

#include <doctest/doctest.h>

#include "kernels/attention_problem.h"

using namespace fovea;
using namespace fovea::test;

namespace {

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
          busy.how.softcap = 0;
          check_flash_equals_reference(busy, bound);
          busy.how.softcap = 1.2;
          check_flash_equals_reference(busy, bound);
        }
      }
    }
  }
}

TEST_CASE("a cap bounds the products, whatever their size, and a wide one changes little") {
  Problem large(Sizes{}, DType::f32, 50), small(Sizes{}), wide(Sizes{}), steep = large;
  large.how.softcap = 3;
  large.run_flash();
  for (const double lse : large.lse.values())
    CHECK(std::fabs(lse) <= 3 + std::log(70) + 1e-5);
  // On the flat ends of tanh nothing reaches q and k.
  for (const double value : large.dq.values())
    CHECK(std::isfinite(value));
  steep.how.softcap = 1e-3;
  steep.run_flash();
  CHECK(distance(steep.dq, random_tensor(steep.dq.shape(), "zero", DType::f32, 0)) <= 1e-3);
  wide.how.softcap = 1e4;
  small.run_flash();
  wide.run_flash();
  for (std::size_t i = 0; i < small.results().size(); ++i) {
    CAPTURE(i);
    CHECK(distance(wide.results()[i], small.results()[i]) <= 1e-5);
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
