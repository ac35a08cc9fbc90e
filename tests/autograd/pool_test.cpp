#include "autograd/ops/pool.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// Three sequences of three tokens of width 2: two real tokens, none, all.
const std::vector<double> kStates = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 11, 12};
const std::vector<double> kValid = {1, 1, 0, 0, 0, 0, 1, 1, 1};

std::vector<double> pooled(Pool rule, bool padded = true) {
  Bench bench;
  const Var x(bench.tensor(kStates, {3, 3, 2}));
  const Tensor valid = padded ? bench.tensor(kValid, {3, 3}, DType::u8) : Tensor();
  return pool(bench.ctx, x, valid, rule).value().values();
}

}  // namespace

TEST_CASE("pooling takes the first token, the mean of the real ones, or the last real one") {
  CHECK(pooled(Pool::first) == std::vector<double>{1, 2, 7, 8, 4, 5});
  CHECK(pooled(Pool::mean) == std::vector<double>{2, 3, 0, 0, 7, 8});
  CHECK(pooled(Pool::last) == std::vector<double>{3, 4, 0, 0, 11, 12});
  CHECK(pooled(Pool::mean, false) == std::vector<double>{3, 4, 6, 4, 7, 8});
  CHECK(pooled(Pool::last, false) == std::vector<double>{5, 6, 2, 3, 11, 12});
}

TEST_CASE(
    "what stands behind the last real token has no effect on a pooled state or its gradient") {
  Bench bench;
  std::vector<double> broken = kStates;
  broken[4] = broken[5] = std::numeric_limits<double>::quiet_NaN();
  const Tensor valid = bench.tensor(kValid, {3, 3}, DType::u8);
  for (const Pool rule : {Pool::first, Pool::mean, Pool::last}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.tensor(broken, {3, 3, 2}));
    const Var y = pool(bench.ctx, x, valid, rule);
    CHECK(y.value().values() == pooled(rule));
    tape.backward(bench.ctx, y, ones(y));
    const std::vector<double> dx = gradient(x);
    CHECK(dx[4] == 0);
    CHECK(dx[5] == 0);
    const double first_row = dx[0] + dx[2];
    CHECK(first_row == 1);  // shares of a sequence add up to one
    bench.ctx.tape = nullptr;
  }
}

TEST_CASE("a mean over many 16-bit states is summed in 32 bits") {
  Bench bench;
  // 4,096 times 1.0078125 in bf16: a sum kept in bf16 stops at 512.
  const Var x(bench.tensor(std::vector<double>(4096, 1.0078125), {1, 4096, 1}, DType::bf16));
  CHECK(pool(bench.ctx, x, {}, Pool::mean).value().values() == std::vector<double>{1.0078125});
}

TEST_CASE("pooling has the same bits on any number of threads, and refuses what does not fit") {
  const auto run = [](int threads) {
    Bench bench(threads);
    return pool(bench.ctx, Var(bench.drawn("x", {3, 50, 300})), {}, Pool::mean).value().values();
  };
  CHECK(run(1) == run(3));
  Bench bench;
  const Var flat(bench.drawn("x", {3, 4}));
  CHECK_THROWS_AS(pool(bench.ctx, flat, {}, Pool::mean), ShapeError);
  const Var x(bench.drawn("x", {3, 4, 2}));
  CHECK_THROWS_WITH_AS(pool(bench.ctx, x, bench.ids({1, 1, 1}, {1, 3}), Pool::mean),
                       doctest::Contains("key_valid is i32 [1,3], but must be u8 [3,4]"),
                       ShapeError);
}
