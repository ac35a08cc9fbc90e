#include <string>
#include <utility>

#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/pool.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::real;

OpCase pool_case(std::string name, Shape shape, Pool rule, bool padded) {
  OpCase out;
  out.name = std::move(name);
  out.inputs = {real(shape)};
  if (padded) out.inputs.push_back({{shape[0], shape[1]}, Kind::mask});
  out.run = [rule, padded](Ctx& c, Inputs in) {
    return std::vector{pool(c, in[0], padded ? in[1].value() : Tensor(), rule)};
  };
  return out;
}

std::vector<OpCase> pool_cases() {
  return {
      pool_case("first", {3, 5, 7}, Pool::first, true),
      pool_case("mean", {2, 9, 21}, Pool::mean, false),
      pool_case("mean of real tokens", {3, 6, 130}, Pool::mean, true),
      pool_case("last", {2, 4, 33}, Pool::last, false),
      pool_case("last real token", {4, 7, 9}, Pool::last, true),
      pool_case("1 token", {1, 1, 1}, Pool::mean, false),
  };
}

}  // namespace

OpList pool_ops();
OpList pool_ops() {
  return {{"pool", "one state for a sequence: of its first or last token, or the mean",
           "src/autograd/ops/pool.h", "src/autograd/ops/pool.cpp", "src/kernels/pool.h",
           "src/kernels/cpu/pool.cpp", "src/kernels/cuda/pool.cu", pool_cases}};
}

}  // namespace fovea
