#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/select.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::mask;
using cases::real;

std::vector<OpCase> select_rows_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return std::vector{select_rows(c, in[0].value(), in[1], in[2])};
  };
  // x strided, as heads of a packed projection are.
  const auto strided = [](Ctx& c, Inputs in) {
    const std::vector<Var> heads = split_heads(c, in[1], {{2, 3}, {2, 3}});
    return std::vector{select_rows(c, in[0].value(), heads[0], heads[1])};
  };
  return {
      {.name = "heads",
       .inputs = {mask({2, 9}), real({2, 3, 9, 4}), real({2, 3, 9, 4})},
       .run = run},
      {.name = "one mask for all samples",
       .inputs = {mask({1, 9}), real({2, 3, 9, 4}), real({2, 3, 9, 4})},
       .run = run},
      {.name = "a number a token",
       .inputs = {mask({2, 9}), real({2, 3, 9}), real({2, 3, 9})},
       .run = run},
      {.name = "strided heads", .inputs = {mask({2, 5}), real({2, 5, 12})}, .run = strided},
  };
}

}  // namespace

OpList select_ops();
OpList select_ops() {
  return {{.name = "select_rows",
           .summary = "tokens from one of two tensors, by a mask",
           .header = "src/autograd/ops/select.h",
           .autograd = "src/autograd/ops/select.cpp",
           .kernels = "src/kernels/select.h",
           .cpu = "src/kernels/cpu/select.cpp",
           .cuda = "src/kernels/cuda/select.cu",
           .cases = select_rows_cases}};
}

}  // namespace fovea
