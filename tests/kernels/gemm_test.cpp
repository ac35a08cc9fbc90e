#include "kernels/gemm.h"

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"
#include "core/tensor.h"
#include "kernels/bias.h"

using namespace fovea;

namespace {

Tensor drawn(std::string_view name, Shape shape, DType dtype) {
  const NamedStream draws(0, name);
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    values.push_back(2 * draws.uniform(static_cast<std::uint64_t>(i)) - 1);
  }
  return Tensor::from(values, shape, dtype);
}

struct Sizes {
  std::int64_t m, n, k;
};

// op(a) op(b) + beta c of one matrix, in f64.
std::vector<double> expected(const Tensor& c, const Tensor& a, const Tensor& b, Sizes s, bool ta,
                             bool tb, double beta) {
  const std::vector<double> av = a.values(), bv = b.values();
  std::vector<double> out = c.values();
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) {
        sum += av[static_cast<std::size_t>(ta ? k * s.m + i : i * s.k + k)] *
               bv[static_cast<std::size_t>(tb ? j * s.k + k : k * s.n + j)];
      }
      double& at = out[static_cast<std::size_t>(i * s.n + j)];
      at = beta == 0 ? sum : sum + beta * at;
    }
  }
  return out;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double out = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::fabs(a[i] - b[i]);
    out = std::isnan(d) ? HUGE_VAL : std::max(out, d);
  }
  return out;
}

// Rounding of the result, and of k products summed in f32.
double tolerance(DType c, std::int64_t k) {
  const double size = std::sqrt(static_cast<double>(k) + 1) + 1;
  switch (c) {
    case DType::f64:
      return 1e-14 * size;
    case DType::f32:
      return 1e-6 * size;
    default:
      return (c == DType::bf16 ? 0.004 : 0.0005) * size;
  }
}

void check(DType cd, DType ad, DType bd, Sizes s, bool ta, bool tb, double beta) {
  Stream stream(kCpu, 2);
  const Tensor a = drawn("a", ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, ad);
  const Tensor b = drawn("b", tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, bd);
  const Tensor c = drawn("c", {s.m, s.n}, cd);
  const std::vector<double> want = expected(c, a, b, s, ta, tb, beta);
  cpu::gemm(stream.ref(), c.view(), a.view(), b.view(), ta, tb, beta);
  INFO(name_of(cd), " = ", name_of(ad), " x ", name_of(bd), ", m ", s.m, " n ", s.n, " k ", s.k,
       ta ? " ta" : "", tb ? " tb" : "", " beta ", beta);
  CHECK(largest_difference(c.values(), want) <= tolerance(cd, s.k));
}

}  // namespace

TEST_CASE(
    "gemm is op(a) op(b) + beta c for every transposition, dtype and size of the last block") {
  const Sizes sizes[] = {{1, 1, 1},    {3, 5, 7},     {128, 16, 33},
                         {129, 7, 20}, {300, 65, 18}, {2, 3, 0}};
  for (const Sizes& s : sizes) {
    for (int bits = 0; bits < 4; ++bits) {
      for (const double beta : {0.0, 1.0, 0.5}) {
        const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0;
        check(DType::f32, DType::f32, DType::f32, s, ta, tb, beta);
        check(DType::f64, DType::f64, DType::f64, s, ta, tb, beta);
        check(DType::bf16, DType::bf16, DType::bf16, s, ta, tb, beta);
        check(DType::f16, DType::f16, DType::f16, s, ta, tb, beta);
        check(DType::f32, DType::bf16, DType::f16, s, ta, tb, beta);   // weight gradients
        check(DType::bf16, DType::f32, DType::bf16, s, ta, tb, beta);  // gradients of f32 logits
      }
    }
  }
}

TEST_CASE("gemm with beta 0 does not read c, and a k of 0 leaves beta c") {
  Stream stream(kCpu);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const std::int64_t m : {2, 128}) {
      const std::vector<double> nans(static_cast<std::size_t>(m), std::nan(""));
      const Tensor c = Tensor::from(nans, {m, 1}, dtype), a = drawn("a", {m, 4}, dtype),
                   b = drawn("b", {1, 4}, dtype);
      cpu::gemm(stream.ref(), c.view(), a.view(), b.view(), false, true, 0.0);
      for (const double v : c.values())
        CHECK(!std::isnan(v));
    }
  }
}

TEST_CASE("gemm multiplies batches over all leading axes, with any strides between rows") {
  Stream stream(kCpu, 2);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    // [B,N,H,D] seen as [B,H,N,D]: rows are H*D apart.
    const Tensor q = drawn("q", {2, 5, 3, 4}, dtype).permute({0, 2, 1, 3});
    const Tensor k = drawn("k", {2, 6, 3, 4}, dtype).permute({0, 2, 1, 3});
    const Tensor c = drawn("c", {2, 5, 3, 6}, dtype).permute({0, 2, 1, 3});
    cpu::gemm(stream.ref(), c.view(), q.view(), k.view(), false, true, 0.0);
    for (std::int64_t batch = 0; batch < 6; ++batch) {
      const auto part = [&](const Tensor& t) {
        const Tensor one = t.slice(0, batch / 3, batch / 3 + 1).slice(1, batch % 3, batch % 3 + 1);
        return Tensor::from(one.values(), {t.size(2), t.size(3)}, dtype);
      };
      CHECK(largest_difference(part(c).values(), expected(part(c), part(q), part(k), {5, 6, 4},
                                                          false, true, 0)) <= tolerance(dtype, 4));
    }
  }
}

TEST_CASE("a row of a product has the same bits whatever follows it, for f32 and 16-bit types") {
  Stream stream(kCpu);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool tb : {false, true}) {
      for (const double beta : {0.0, 1.0}) {
        const Tensor a = drawn("a", {260, 70}, dtype),
                     b = drawn("b", tb ? Shape{45, 70} : Shape{70, 45}, dtype);
        const Tensor all = drawn("c", {260, 45}, DType::f32);
        cpu::gemm(stream.ref(), all.view(), a.view(), b.view(), false, tb, beta);
        const std::vector<double> want = all.values();
        for (const std::int64_t rows : {1, 2, 12, 16, 100, 128, 130, 255}) {
          const Tensor some = drawn("c", {rows, 45}, DType::f32);
          cpu::gemm(stream.ref(), some.view(), a.slice(0, 0, rows).view(), b.view(), false, tb,
                    beta);
          const std::vector<double> got = some.values();
          CHECK(std::equal(got.begin(), got.end(), want.begin()));
        }
      }
    }
  }
}

TEST_CASE("gemm has the same bits on 1, 2 and 3 threads") {
  for (const bool ta : {false, true}) {
    std::vector<double> first;
    for (const int threads : {1, 2, 3}) {
      Stream stream(kCpu, threads);
      const Tensor a = drawn("a", ta ? Shape{50, 700} : Shape{700, 50}, DType::f32),
                   b = drawn("b", {50, 30}, DType::f32);
      const Tensor c = drawn("c", {700, 30}, DType::f32);
      cpu::gemm(stream.ref(), c.view(), a.view(), b.view(), ta, false, 1.0);
      if (first.empty()) first = c.values();
      CHECK(c.values() == first);
    }
  }
}

TEST_CASE("gemm_bias adds the bias to every row and rounds once") {
  Stream stream(kCpu, 2);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t m : {3, 128, 200}) {
      const Tensor a = drawn("a", {m, 9}, dtype), b = drawn("b", {5, 9}, dtype),
                   bias = drawn("bias", {5}, dtype);
      const Tensor c = drawn("c", {m, 5}, dtype);
      std::vector<double> want = expected(c, a, b, {m, 5, 9}, false, true, 0);
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] += bias.values()[i % 5];
      cpu::gemm_bias(stream.ref(), c.view(), a.view(), b.view(), bias.view(), false, true);
      CHECK(largest_difference(c.values(), want) <= tolerance(dtype, 9));
    }
  }
}

TEST_CASE("column_sum adds to what is there, in an order that threads do not change") {
  std::vector<double> first;
  for (const int threads : {1, 2, 3}) {
    Stream stream(kCpu, threads);
    const Tensor x = drawn("x", {1000, 37}, DType::f32), total = drawn("total", {37}, DType::f32);
    std::vector<double> want = total.values();
    const std::vector<double> values = x.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      want[i % 37] += values[i];
    cpu::column_sum(stream.ref(), total.view(), x.view());
    CHECK(largest_difference(total.values(), want) < 1e-4);
    if (first.empty()) first = total.values();
    CHECK(total.values() == first);
  }
  Stream stream(kCpu);
  const Tensor ones = Tensor::from(std::vector<double>(600, 1), {300, 2}, DType::bf16);
  const Tensor total = Tensor::from(std::vector<double>{0, 5}, {2}, DType::f32);
  cpu::column_sum(stream.ref(), total.view(), ones.view());  // bf16 itself stops counting at 256
  CHECK(total.values() == std::vector<double>{300, 305});
}

TEST_CASE("bias_gelu works in place and its backward sums the columns") {
  Stream stream(kCpu, 2);
  const Tensor product = drawn("product", {200, 19}, DType::f32),
               bias = drawn("bias", {19}, DType::f32);
  const Tensor out = drawn("out", {200, 19}, DType::f32);
  std::vector<double> sums = product.values();
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] += bias.values()[i % 19];
  cpu::bias_gelu_forward(stream.ref(), out.view(), product.view(), bias.view());
  for (std::size_t i = 0; i < sums.size(); i += 97) {
    const double x = sums[i];
    const double gelu = 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    CHECK(out.values()[i] == doctest::Approx(gelu).epsilon(1e-5));
  }
  const Tensor dbias = drawn("dbias", {19}, DType::f32),
               dout = drawn("dout", {200, 19}, DType::f32);
  std::vector<double> want = dbias.values();
  const std::vector<double> given = dout.values();
  cpu::bias_gelu_backward(stream.ref(), dout.view(), dbias.view(), dout.view(), product.view(),
                          bias.view());
  const std::vector<double> dpre = dout.values();
  for (std::size_t i = 0; i < dpre.size(); ++i) {
    want[i % 19] += dpre[i];
    if (i % 97 != 0) continue;
    const double x = sums[i], t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    const double slope =
        0.5 * (1 + t + x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x));
    CHECK(dpre[i] == doctest::Approx(given[i] * slope).epsilon(1e-4));
  }
  CHECK(largest_difference(dbias.values(), want) < 1e-4);
}

TEST_CASE("on meta gemm counts 2 m n k and the bytes it moves") {
  Stream stream(kMeta);
  CachingAllocator memory{memory_source(kMeta)};
  const auto tensor = [&](Shape shape) {
    return Tensor::empty(memory, shape, DType::f32, kMeta, "test");
  };
  const Tensor c = tensor({2, 3, 5}), a = tensor({2, 7, 3}), b = tensor({2, 7, 5});
  FOVEA_ON(kMeta, gemm(stream.ref(), c.view(), a.view(), b.view(), true, false, 0.0));
  CHECK(stream.cost().flops == 2 * 2 * 3 * 5 * 7);
  CHECK(stream.cost().bytes == 4 * (2 * 3 * 5 + 2 * 7 * 3 + 2 * 7 * 5));
  CHECK(stream.cost().launches == 1);
}
