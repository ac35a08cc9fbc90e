#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/move_tokens.h"

namespace fovea {

using cases::Inputs;
using cases::real;

namespace {

OpCase take_case(std::string name, Shape x, TokenRange range) {
  OpCase out{.name = std::move(name), .inputs = {real(x)}, .run = nullptr};
  out.run = [range](Ctx& c, Inputs in) { return std::vector{take_tokens(c, in[0], range)}; };
  return out;
}

std::vector<OpCase> take_cases() {
  OpCase strided{.name = "strided heads", .inputs = {real({2, 5, 24})}, .run = nullptr};
  strided.run = [](Ctx& c, Inputs in) {
    const Var q = split_heads(c, in[0], {{2, 4}, {4, 4}})[1];
    return std::vector{take_tokens(c, q, {.first = 1, .count = 3, .reversed = true})};
  };
  return {
      take_case("from the middle", {2, 2, 9, 5}, {.first = 2, .count = 4}),
      take_case("turned round", {2, 2, 9, 5}, {.first = 0, .count = 9, .reversed = true}),
      take_case("from the middle, turned round", {1, 3, 9, 8},
                {.first = 4, .count = 3, .reversed = true}),
      take_case("all", {1, 1, 70, 3}, {.first = 0, .count = 70}),
      std::move(strided),
  };
}

OpCase put_case(std::string name, Shape x, std::int64_t tokens, TokenRange range, double rest) {
  OpCase out{.name = std::move(name), .inputs = {real(x)}, .run = nullptr};
  out.run = [=](Ctx& c, Inputs in) {
    return std::vector{put_tokens(c, in[0], tokens, range, rest)};
  };
  return out;
}

std::vector<OpCase> put_cases() {
  return {
      put_case("into the middle", {2, 2, 4, 5}, 9, {.first = 2, .count = 4}, 0),
      put_case("turned round, ones elsewhere", {1, 3, 3, 8}, 9,
               {.first = 4, .count = 3, .reversed = true}, 1),
      put_case("all, turned round", {1, 2, 9, 1}, 9, {.first = 0, .count = 9, .reversed = true}, 0),
  };
}

}  // namespace

OpList move_tokens_ops();
OpList move_tokens_ops() {
  const auto spec = [](std::string_view name, std::string_view summary,
                       std::vector<OpCase> (*cases)()) {
    return OpSpec{name,
                  summary,
                  "src/autograd/ops/move_tokens.h",
                  "src/autograd/ops/move_tokens.cpp",
                  "src/kernels/move_tokens.h",
                  "src/kernels/cpu/move_tokens.cpp",
                  "src/kernels/cuda/move_tokens.cu",
                  cases};
  };
  return {
      spec("put_tokens", "A stretch of tokens among others.", put_cases),
      spec("take_tokens", "A stretch of tokens, as it stands or turned round.", take_cases),
  };
}

}  // namespace fovea
