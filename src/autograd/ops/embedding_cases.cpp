#include <string>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/embedding.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;

CaseInput ids(Shape shape, double rows) {
  return {shape, Kind::ids, 0, rows, false};
}

std::vector<OpCase> embedding_cases() {
  const auto tokens = [](Ctx& c, Inputs in) {
    return std::vector{embedding(c, in[0].value(), in[1], {}, {})};
  };
  const auto counted = [](Ctx& c, Inputs in) {
    return std::vector{embedding(c, in[0].value(), in[1], in[2], {})};
  };
  const auto placed = [](Ctx& c, Inputs in) {
    return std::vector{embedding(c, in[0].value(), in[1], in[2], in[3].value())};
  };
  const CaseInput frozen{{11, 16}, Kind::parameter, -1, 1, false};
  return {
      {.name = "tokens", .inputs = {ids({2, 9}, 5), parameter({5, 21})}, .run = tokens},
      {.name = "tokens, wide", .inputs = {ids({1, 7}, 4), parameter({4, 130})}, .run = tokens},
      {.name = "1 token", .inputs = {ids({1, 1}, 3), parameter({3, 1})}, .run = tokens},
      {.name = "learned positions",
       .inputs = {ids({3, 5}, 11), parameter({11, 16}), parameter({6, 16})},
       .run = counted},
      {.name = "given positions",
       .inputs = {ids({2, 5}, 11), parameter({11, 16}), parameter({8, 16}), ids({2, 5}, 8)},
       .run = placed},
      {.name = "frozen table",
       .inputs = {ids({2, 5}, 11), frozen, parameter({5, 16})},
       .run = counted},
      {.name = "computed table", .inputs = {ids({2, 5}, 7), real({7, 6})}, .run = tokens},
  };
}

OpCase rope_case(std::string name, Shape shape, Rope how, std::int64_t first = 0) {
  return {.name = std::move(name), .inputs = {real(shape)}, .run = [how, first](Ctx& c, Inputs in) {
            return std::vector{rope(c, in[0], how, {}, first)};
          }};
}

std::vector<OpCase> rope_cases() {
  const auto placed = [](Ctx& c, Inputs in) {
    return std::vector{rope(c, in[0], {}, in[1].value())};
  };
  const auto strided = [](Ctx& c, Inputs in) {
    return std::vector{rope(c, split_heads(c, in[0], {{2, 6}, {1, 6}})[0], {}, {})};
  };
  return {
      rope_case("half", {2, 3, 5, 32}, {}),
      rope_case("half, odd width", {1, 2, 5, 10}, {}),
      rope_case("interleaved", {2, 1, 4, 8}, {.interleaved = true}),
      rope_case("partial width, later positions", {1, 2, 3, 11}, {.base = 500, .width = 6}, 100),
      {.name = "given positions", .inputs = {real({2, 2, 3, 8}), ids({2, 3}, 50)}, .run = placed},
      {.name = "strided heads", .inputs = {real({2, 3, 18})}, .run = strided},
  };
}

}  // namespace

OpList embedding_ops();
OpList embedding_ops() {
  return {
      {"embedding", "rows of a table by id, plus positions", "src/autograd/ops/embedding.h",
       "src/autograd/ops/embedding.cpp", "src/kernels/embedding.h", "src/kernels/cpu/embedding.cpp",
       "src/kernels/cuda/embedding.cu", embedding_cases},
      {"rope", "rotary positions", "src/autograd/ops/embedding.h", "src/autograd/ops/rope.cpp",
       "src/kernels/rope.h", "src/kernels/cpu/rope.cpp", "src/kernels/cuda/rope.cu", rope_cases},
  };
}

}  // namespace fovea
