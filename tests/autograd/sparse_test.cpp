#include "autograd/ops/sparse.h"

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"
#include "kernels/spmm.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// [3, 4]: a row without entries, a column without entries.
const std::vector<double> kDense = {1, 0, 2,  0,  //
                                    0, 0, 0,  0,  //
                                    0, 0, -3, 0.5};

}  // namespace

TEST_CASE("compressing keeps the nonzero entries of a matrix and of its transpose in order") {
  Bench bench;
  const SparseMatrix s = compress(bench.stream, bench.tensor(kDense, {3, 4}), DType::bf16);
  CHECK(s.in == 3);
  CHECK(s.out == 4);
  CHECK(s.entries() == 4);
  CHECK(s.rows.offsets.values() == std::vector<double>{0, 2, 2, 4});
  CHECK(s.rows.columns.values() == std::vector<double>{0, 2, 2, 3});
  CHECK(s.rows.values.values() == std::vector<double>{1, 2, -3, 0.5});
  CHECK(s.columns.offsets.values() == std::vector<double>{0, 1, 1, 3, 4});
  CHECK(s.columns.columns.values() == std::vector<double>{0, 0, 2, 2});
  CHECK(s.columns.values.values() == std::vector<double>{1, 2, -3, 0.5});
  CHECK(s.rows.values.dtype() == DType::bf16);
  CHECK(s.rows.offsets.dtype() == DType::i32);
}

TEST_CASE("sparse_linear is x S, and its gradient dy S^T") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const SparseMatrix s = compress(bench.stream, bench.tensor(kDense, {3, 4}), DType::f32);
  const Var x = leaf(bench.tensor({1, 2, 3, 4, 5, 6}, {2, 1, 3}));
  const Var y = sparse_linear(bench.ctx, x, s);
  CHECK(y.shape() == Shape{2, 1, 4});
  CHECK(y.value().values() == std::vector<double>{1, 0, -7, 1.5, 4, 0, -10, 3});
  tape.backward(bench.ctx, y, bench.tensor({1, 9, 1, 2, 0, 9, 1, 0}, {2, 1, 4}));
  CHECK(gradient(x) == std::vector<double>{3, 0, -2, 2, 0, -3});
}

TEST_CASE("sparse_linear reads strided rows") {
  Bench bench;
  const SparseMatrix s = compress(bench.stream, bench.tensor(kDense, {3, 4}), DType::f32);
  const Tensor packed = bench.drawn("x", {2, 5, 3});
  const Tensor strided = packed.permute({1, 0, 2});
  const Tensor dense = Tensor::from(strided.values(), strided.shape(), DType::f32);
  CHECK(sparse_linear(bench.ctx, Var(strided), s).value().values() ==
        sparse_linear(bench.ctx, Var(dense), s).value().values());
}

TEST_CASE("16-bit products with a sparse matrix are summed in f32") {
  Bench bench(1, Precision::bf16_mixed);
  // 1 + 256 * 2^-10: bf16 would lose every one of the small terms.
  std::vector<double> column(257, 0.0009765625);
  column[0] = 1;
  const SparseMatrix s = compress(bench.stream, bench.tensor(column, {257, 1}), DType::bf16);
  const Tensor x = bench.tensor(std::vector<double>(257, 1), {1, 257}, DType::bf16);
  CHECK(sparse_linear(bench.ctx, Var(x), s).value().item() == 1.25);
}

TEST_CASE("sparse_linear has the same bits on 1, 2 and 3 threads") {
  std::vector<std::vector<double>> first;
  for (const int threads : {1, 2, 3}) {
    Bench bench(threads);
    Tape tape;
    bench.ctx.tape = &tape;
    std::vector<double> dense = bench.drawn("s", {64, 48}).values();
    for (std::size_t i = 0; i < dense.size(); ++i)
      dense[i] = i % 5 == 0 ? dense[i] : 0;
    const SparseMatrix s = compress(bench.stream, bench.tensor(dense, {64, 48}), DType::f32);
    const Var x = leaf(bench.drawn("x", {500, 64}));
    const Var y = sparse_linear(bench.ctx, x, s);
    tape.backward(bench.ctx, y, bench.drawn("dy", {500, 48}));
    const std::vector<std::vector<double>> now{y.value().values(), gradient(x)};
    if (first.empty()) first = now;
    CHECK(now == first);
  }
}

TEST_CASE("sparse_linear without rows gives none") {
  Bench bench;
  const SparseMatrix s = compress(bench.stream, bench.tensor(kDense, {3, 4}), DType::f32);
  const Var y = sparse_linear(bench.ctx, Var(bench.drawn("x", {0, 3})), s);
  CHECK(y.shape() == Shape{0, 4});
}

TEST_CASE("meta counts a multiply-add for every entry and row") {
  Stream stream(kMeta);
  const Tensor y = Tensor::empty({5, 4}, DType::f32, kMeta),
               x = Tensor::empty({5, 3}, DType::f32, kMeta),
               offsets = Tensor::empty({5}, DType::i32, kMeta),
               columns = Tensor::empty({7}, DType::i32, kMeta),
               values = Tensor::empty({7}, DType::f32, kMeta);
  meta::csr_spmm(stream.ref(), y.view(), x.view(), offsets.view(), columns.view(), values.view());
  CHECK(stream.cost().flops == 2 * 5 * 7);
  CHECK(stream.cost().launches == 1);
}

TEST_CASE("what sparse_linear cannot multiply is refused with its values") {
  Bench bench;
  const SparseMatrix s = compress(bench.stream, bench.tensor(kDense, {3, 4}), DType::f32);
  CHECK_THROWS_WITH_AS(sparse_linear(bench.ctx, Var(bench.drawn("x", {2, 4})), s),
                       "sparse_linear: x [2,4] f32, S [3,4] f32; needed are x [..., in], S [in, "
                       "out] of one float dtype",
                       ShapeError);
  CHECK_THROWS_AS(sparse_linear(bench.ctx, Var(bench.drawn("x", {2, 3}, DType::bf16)), s),
                  ShapeError);
  CHECK_THROWS_WITH_AS(compress(bench.stream, bench.drawn("s", {12}), DType::f32),
                       "compress: dense is [12], but must be [in, out]", ShapeError);
}
