#include "kernels/activation.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/bench.h"

using namespace fovea;
using test::Bench;

namespace {

Tensor dropped(const Bench& bench, const Tensor& x, double p, const Key& key) {
  Tensor y = bench.ctx.empty_like(x);
  cpu::dropout_forward(bench.stream.ref(), y.view(), x.view(), p, key);
  return y;
}

}  // namespace

TEST_CASE("dropout follows its key element by element, whatever the alignment") {
  Bench bench;
  for (const std::int64_t first : {0, 1, 3, 50}) {
    bench.at = {.step = 7, .first_sample = first};
    const Key key = bench.ctx.key("drop");
    const Tensor x = bench.tensor(std::vector<double>(5 * 41, 1.0), {5, 41});
    const std::vector<double> y = dropped(bench, x, 0.25, key).values();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::uint32_t bits = random_bits(key, static_cast<std::uint64_t>(first) * 41 + i) >> 8;
      CHECK(y[i] == (bits < (1u << 22) ? 0.0 : static_cast<double>(1 / 0.75f)));
    }
  }
}

TEST_CASE("cutting a batch into micro-batches drops the same elements") {
  Bench bench;
  const Tensor x = bench.drawn("x", {6, 3, 7});
  const std::vector<double> whole = dropped(bench, x, 0.5, bench.ctx.key("drop")).values();
  std::vector<double> pieces;
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 4}, std::pair{4, 6}}) {
    bench.at.first_sample = from;
    for (const double v : dropped(bench, x.slice(0, from, to), 0.5, bench.ctx.key("drop")).values())
      pieces.push_back(v);
  }
  CHECK(pieces == whole);
}

TEST_CASE("another step, name or seed drops other elements") {
  Bench bench;
  const Tensor x = bench.tensor(std::vector<double>(512, 1.0), {4, 128});
  const auto first = dropped(bench, x, 0.5, bench.ctx.key("drop")).values();
  CHECK(first == dropped(bench, x, 0.5, bench.ctx.key("drop")).values());
  CHECK(first != dropped(bench, x, 0.5, bench.ctx.key("other")).values());
  bench.at.step = 1;
  CHECK(first != dropped(bench, x, 0.5, bench.ctx.key("drop")).values());
  bench.at.step = 0;
  bench.ctx.seed = 1;
  CHECK(first != dropped(bench, x, 0.5, bench.ctx.key("drop")).values());
}

TEST_CASE("dropout keeps 1 - p of the elements and the mean") {
  const Bench bench;
  constexpr std::int64_t kCount = 200000;
  const Tensor x = bench.tensor(std::vector<double>(kCount, 1.0), {kCount});
  for (const double p : {0.1, 0.5, 0.9}) {
    std::int64_t kept = 0;
    double mean = 0;
    for (const double v : dropped(bench, x, p, bench.ctx.key("rate")).values()) {
      kept += v != 0 ? 1 : 0;
      mean += v / kCount;
    }
    const double spread = std::sqrt(p * (1 - p) / kCount);  // of the keep rate
    CHECK(std::fabs(static_cast<double>(kept) / kCount - (1 - p)) < 4 * spread);
    CHECK(std::fabs(mean - 1) < 4 * spread / (1 - p));
  }
}

TEST_CASE("dropout has the same bits on one and on three threads") {
  const Bench one(1), three(3);
  const Tensor x = one.drawn("x", {70001});
  CHECK(dropped(one, x, 0.3, one.ctx.key("d")).values() ==
        dropped(three, x, 0.3, three.ctx.key("d")).values());
}

TEST_CASE("a row of softmax sums to one, and huge logits do not overflow") {
  const Bench bench;
  const Tensor x = bench.tensor({1e4, 1e4 - 1, -1e4, 0, 0, 0}, {2, 3});
  const Tensor y = bench.ctx.empty_like(x);
  cpu::softmax_forward(bench.stream.ref(), y.view(), x.view());
  const std::vector<double> v = y.values();
  CHECK(v[0] == doctest::Approx(1 / (1 + std::exp(-1))).epsilon(1e-6));
  CHECK(v[0] + v[1] + v[2] == doctest::Approx(1).epsilon(1e-6));
  CHECK(v[3] == doctest::Approx(1.0 / 3).epsilon(1e-6));
}

TEST_CASE("swiglu of large negative gates is zero, not NaN") {
  const Bench bench;
  const Tensor x = bench.tensor({-1000, 200, 3, 2}, {1, 4}),
               y = bench.ctx.empty({1, 2}, DType::f32);
  cpu::swiglu_forward(bench.stream.ref(), y.view(), x.view());
  CHECK(y.values() == std::vector<double>{0, 400});
}
