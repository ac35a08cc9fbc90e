#include "core/shape.h"

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;

TEST_CASE("a shape knows its sizes, their product, its rows and columns") {
  const Shape shape{2, 3, 4};
  CHECK(shape.rank() == 3);
  CHECK(shape[1] == 3);
  CHECK(shape.numel() == 24);
  CHECK(shape.rows() == 6);
  CHECK(shape.cols() == 4);
  CHECK(shape.strides() == Shape{12, 4, 1});
  CHECK(Shape{2, 4, 128, 64}.str() == "[2,4,128,64]");
}

TEST_CASE("a scalar has one element, one row and one column") {
  const Shape scalar;
  CHECK(scalar.numel() == 1);
  CHECK(scalar.rows() == 1);
  CHECK(scalar.cols() == 1);
  CHECK(scalar.str() == "[]");
}

TEST_CASE("a size of zero empties the shape") {
  CHECK(Shape{3, 0}.numel() == 0);
  CHECK(Shape{3, 0}.rows() == 0);
  CHECK(Shape{0, 3}.rows() == 0);
}

TEST_CASE("shapes are equal if ranks and sizes are") {
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK(!(Shape{2, 3} == Shape{3, 2}));
  CHECK(!(Shape{2} == Shape{2, 1}));
  CHECK(Shape{2, 3}.without_cols() == Shape{2});
}

TEST_CASE("the last axis is replaced and dropped") {
  CHECK(Shape{2, 3}.with_cols(5) == Shape{2, 5});
  CHECK(Shape{2, 3, 4}.without_cols() == Shape{2, 3});
  CHECK_THROWS_AS(Shape{}.with_cols(2), ShapeError);
  CHECK_THROWS_AS(Shape{}.without_cols(), ShapeError);
}

TEST_CASE("a negative size and a seventh axis are refused") {
  CHECK_THROWS_WITH_AS((Shape{2, -3}), "shape: size -3 is negative after [2]", ShapeError);
  CHECK_THROWS_WITH_AS((Shape{1, 1, 1, 1, 1, 1, 1}), "shape: more than 6 axes after [1,1,1,1,1,1]",
                       ShapeError);
}
