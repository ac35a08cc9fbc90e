#include "kernels/basic.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/bench.h"

using namespace fovea;
using test::Bench;

namespace {

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};
constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

}  // namespace

TEST_CASE("fill writes every dtype") {
  Bench bench;
  for (const DType dtype : kAll) {
    const Tensor x = bench.ctx.empty({3, 7}, dtype);
    cpu::fill(bench.stream.ref(), x.view(), 5.0);
    for (const double v : x.values())
      CHECK(v == 5.0);
  }
}

TEST_CASE("copy converts between all dtypes and honours strides like the host's copy") {
  Bench bench;
  std::vector<double> values;
  for (int i = 0; i < 2 * 3 * 5 * 19; ++i)
    values.push_back(i % 120 + (i % 4) * 0.25);
  for (const DType from_dtype : kAll) {
    const Tensor from = bench.tensor(values, {2, 3, 5, 19}, from_dtype);
    for (const DType to_dtype : kAll) {
      for (const bool strided : {false, true}) {
        const Tensor source = strided ? from.permute({2, 0, 3, 1}) : from;
        const Tensor found = bench.ctx.empty(source.shape(), to_dtype),
                     expected = bench.ctx.empty(source.shape(), to_dtype);
        cpu::copy(bench.stream.ref(), found.view(), source.view());
        copy_host(expected.view(), source.view());
        CHECK(found.values() == expected.values());
      }
    }
  }
}

TEST_CASE("copy writes into a strided slice and nowhere else") {
  Bench bench;
  const Tensor whole = bench.tensor(std::vector<double>(2 * 4 * 6, -1.0), {2, 4, 6});
  const Tensor part = bench.drawn("part", {2, 4, 3});
  cpu::copy(bench.stream.ref(), whole.slice(2, 2, 5).view(), part.view());
  CHECK(whole.slice(2, 2, 5).values() == part.values());
  for (const double v : whole.slice(2, 0, 2).values())
    CHECK(v == -1.0);
  for (const double v : whole.slice(2, 5, 6).values())
    CHECK(v == -1.0);
}

TEST_CASE("accumulate adds any float dtype to any other, strided or not") {
  Bench bench;
  for (const DType to_dtype : kFloats) {
    for (const DType from_dtype : kFloats) {
      const Tensor to = bench.tensor(std::vector<double>(5 * 21, 0.5), {21, 5}, to_dtype);
      const Tensor from = bench.tensor(std::vector<double>(5 * 21, 0.25), {5, 21}, from_dtype);
      cpu::accumulate(bench.stream.ref(), to.view(), from.permute({1, 0}).view());
      cpu::accumulate(bench.stream.ref(), to.view(), from.reshape({21, 5}).view());
      for (const double v : to.values())
        CHECK(v == 1.0);
    }
  }
}

TEST_CASE("a sum has the same bits on one and on three threads, and is near the exact one") {
  const Bench one(1), three(3);
  const Tensor x = one.drawn("sum", {100003});
  double exact = 0;
  for (const double v : x.values())
    exact += v;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor typed = one.tensor(x.values(), x.shape(), dtype);
    const Tensor a = one.ctx.empty({}, dtype), b = one.ctx.empty({}, dtype);
    cpu::sum_forward(one.stream.ref(), a.view(), typed.view());
    cpu::sum_forward(three.stream.ref(), b.view(), typed.view());
    CHECK(a.item() == b.item());
    CHECK(a.item() == doctest::Approx(exact).epsilon(1e-4));
  }
}

TEST_CASE("the sum of nothing is zero") {
  const Bench bench;
  const Tensor out = bench.ctx.empty({}, DType::f32);
  cpu::sum_forward(bench.stream.ref(), out.view(), bench.ctx.empty({0, 4}, DType::f32).view());
  CHECK(out.item() == 0.0);
}

TEST_CASE("scale_by reads its factor from memory, f32 or f64") {
  const Bench bench;
  const Tensor x = bench.tensor({1, -2, 4}, {3});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor out = bench.ctx.empty_like(x);
    cpu::scale_by_forward(bench.stream.ref(), out.view(), x.view(),
                          bench.tensor({0.5}, {1}, dtype).view());
    CHECK(out.values() == std::vector<double>{0.5, -1, 2});
  }
}
