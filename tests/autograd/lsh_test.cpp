// Buckets and orders of tokens, told by the words of baselines.md 15.2.

#include "autograd/ops/lsh.h"

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("a token's bucket is the largest of its products and their opposites, ties going low") {
  Bench bench;
  // Three columns; the sample uses ceil(5 / (2 bucket_size)) of them.
  const Tensor rotations =
      Tensor::from(std::vector<double>{1, 0, 9, 0, 1, 9}, {1, 2, 3}, DType::f32);
  const Tensor x =
      Tensor::from(std::vector<double>{3, 1, -3, 1, 1, -4, 2, 2, 0, 0}, {1, 1, 5, 2}, DType::f32);
  const auto buckets = [&](std::int64_t bucket_size, const Tensor& valid = {}) {
    return hash_tokens(bench.ctx, x, rotations, valid, bucket_size).bucket.values();
  };
  CHECK(buckets(2) == std::vector<double>{0, 2, 3, 0, 0});  // two columns
  CHECK(buckets(3) == std::vector<double>{0, 1, 0, 0, 0});  // one
  CHECK(buckets(1) == std::vector<double>{2, 5, 5, 2, 0});  // all three
  // Four valid tokens of bucket size 2 use one column; invalid ones go to an extra bucket.
  const Tensor valid = Tensor::from(std::vector<double>{1, 1, 1, 0, 1}, {1, 5}, DType::u8);
  CHECK(buckets(2, valid) == std::vector<double>{0, 1, 0, 6, 0});
}

TEST_CASE("tokens are sorted by bucket, and those of one bucket stay in their order") {
  Bench bench;
  const Tensor rotations = bench.drawn("rotations", {3, 8, 4});
  const Tensor x = bench.drawn("x", {2, 3, 150, 8});
  const LshTables t = hash_tokens(bench.ctx, x, rotations, {}, 20);
  const std::vector<double> bucket = t.bucket.values(), order = t.order.values(),
                            slot = t.slot.values();
  for (std::size_t row = 0; row < 3 * 2 * 3; ++row) {
    const auto at = [&](const std::vector<double>& x_of, std::size_t i) {
      return x_of[row * 150 + i];
    };
    for (std::size_t s = 0; s < 150; ++s) {
      const auto token = static_cast<std::size_t>(at(order, s));
      CHECK(at(slot, token) == static_cast<double>(s));
      CHECK(at(bucket, token) < 8);
      if (s == 0) continue;
      const auto before = static_cast<std::size_t>(at(order, s - 1));
      const bool sorted = at(bucket, before) < at(bucket, token) ||
                          (at(bucket, before) == at(bucket, token) && before < token);
      CHECK(sorted);
    }
  }
}

TEST_CASE("rotations of another width are refused") {
  Bench bench;
  const Tensor x = bench.drawn("x", {1, 1, 5, 8});
  CHECK_THROWS_AS(hash_tokens(bench.ctx, x, bench.drawn("r", {2, 7, 4}), {}, 2), ShapeError);
  CHECK_THROWS_AS(hash_tokens(bench.ctx, x, bench.drawn("r", {2, 8, 4}),
                              Tensor::from(std::vector<double>(4, 1.0), {1, 4}, DType::u8), 2),
                  ShapeError);
}
