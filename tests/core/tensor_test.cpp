#include "core/tensor.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;

namespace {

// 0, 1, 2, ... in this shape.
Tensor counted(Shape shape, DType dtype = DType::f32) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<double>(i));
  return Tensor::from(values, shape, dtype);
}

}  // namespace

TEST_CASE("an undefined tensor has an empty view") {
  const Tensor none;
  CHECK(!none.defined());
  CHECK(!none.view());
}

TEST_CASE("values are converted to every dtype and back") {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    const Tensor t = Tensor::from(std::vector<double>{0, 1, 100}, {3}, dtype);
    CHECK(t.values() == std::vector<double>{0, 1, 100});
    CHECK(t.bytes() == 3 * size_of(dtype));
  }
  CHECK(Tensor::from(std::vector<double>{-5}, {1}, DType::i32).item() == -5);
  CHECK(Tensor::from(std::vector<double>{1.0 / 3}, {}, DType::f16).item() ==
        doctest::Approx(1.0 / 3).epsilon(1e-3));
}

TEST_CASE("copies and reshapes share their bytes") {
  Tensor a = counted({2, 6});
  CHECK(a.owns_alone());
  {
    const Tensor b = a, c = a.reshape({3, 4});
    CHECK(!a.owns_alone());
    c.data<float>()[5] = 50;
    CHECK(b.values()[5] == 50);
    CHECK(c.shape() == Shape{3, 4});
  }
  CHECK(a.owns_alone());
}

TEST_CASE("a slice is a strided view, and slices of slices add up") {
  const Tensor a = counted({4, 6}), b = a.slice(1, 2, 5), c = b.slice(0, 1, 3);
  CHECK(b.shape() == Shape{4, 3});
  CHECK(!b.is_contiguous());
  CHECK(b.values() == std::vector<double>{2, 3, 4, 8, 9, 10, 14, 15, 16, 20, 21, 22});
  CHECK(c.values() == std::vector<double>{8, 9, 10, 14, 15, 16});
  CHECK(a.slice(-1, 5, 6).values() == std::vector<double>{5, 11, 17, 23});
  CHECK(a.slice(0, 1, 2).is_contiguous());
  CHECK(a.slice(0, 2, 2).numel() == 0);
}

TEST_CASE("permute moves axes and values follow") {
  const Tensor a = counted({2, 3}), t = a.permute({1, 0});
  CHECK(t.shape() == Shape{3, 2});
  CHECK(t.values() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(t.permute({1, 0}).values() == a.values());
  CHECK(counted({2, 3, 4}).permute({2, 0, 1}).slice(0, 1, 2).values() ==
        std::vector<double>{1, 5, 9, 13, 17, 21});
}

TEST_CASE("a view says where the bytes lie") {
  const Tensor a = counted({4, 6});
  const View v = a.slice(0, 1, 3).slice(1, 2, 4).view();
  CHECK(v.ptr<float>() == a.data<float>() + 8);
  CHECK(v.rank == 2);
  CHECK(v.dim[1] == 2);
  CHECK(v.stride[0] == 6);
  CHECK(v.rows() == 2);
  CHECK(v.cols() == 2);
  CHECK(v.numel() == 4);
}

TEST_CASE("copy_host converts and honours strides on both sides") {
  const Tensor from = counted({2, 3}, DType::i32).permute({1, 0});
  const Tensor to = counted({3, 4}, DType::f16);
  copy_host(to.slice(1, 1, 3).view(), from.view());
  CHECK(to.values() == std::vector<double>{0, 0, 3, 3, 4, 1, 4, 7, 8, 2, 5, 11});
  CHECK_THROWS_AS(copy_host(to.view(), from.view()), ShapeError);
}

TEST_CASE("to makes a contiguous copy of its own") {
  Stream stream(kCpu);
  const Tensor a = counted({2, 3}), b = a.permute({1, 0}).to(kCpu, stream);
  CHECK(b.is_contiguous());
  CHECK(b.values() == std::vector<double>{0, 3, 1, 4, 2, 5});
  b.data<float>()[0] = 9;
  CHECK(a.values()[0] == 0);
  CHECK(a.to(kMeta, stream).device() == kMeta);
}

TEST_CASE("bytes return to their allocator with the last view") {
  CachingAllocator memory(memory_source(kCpu));
  Tensor view;
  {
    const Tensor whole = Tensor::empty(memory, {8, 128}, DType::f32, kCpu, "t");
    view = whole.slice(0, 7, 8);
  }
  CHECK(memory.stats().live == 4096);
  view = Tensor{};
  CHECK(memory.stats().live == 0);
}

TEST_CASE("what does not fit is refused with its shapes") {
  const Tensor a = counted({2, 6});
  CHECK_THROWS_WITH_AS(a.reshape({5}), "reshape: [2,6] to [5]", ShapeError);
  CHECK_THROWS_WITH_AS(a.permute({1, 0}).reshape({12}), "reshape: [6,2] (not contiguous) to [12]",
                       ShapeError);
  CHECK_THROWS_WITH_AS(a.slice(1, 4, 7), "slice: axis 1 from 4 to 7 of [2,6]", ShapeError);
  CHECK_THROWS_AS(a.slice(2, 0, 1), ShapeError);
  CHECK_THROWS_AS(a.slice(0, 2, 1), ShapeError);
  CHECK_THROWS_AS(a.permute({0}), ShapeError);
  CHECK_THROWS_AS(a.item(), ShapeError);
  CHECK_THROWS_WITH_AS(Tensor::from(std::vector<double>{1, 2}, {3}, DType::f32),
                       "tensor: 2 values for shape [3]", ShapeError);
}
