#include "autograd/op_registry.h"
#include "autograd/ops/case_inputs.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/loss.h"

namespace fovea {

namespace {

using cases::Inputs;
using cases::Kind;
using cases::parameter;
using cases::real;

// From -1: some rows are ignored.
CaseInput targets(Shape shape, double classes, double low = 0) {
  return {shape, Kind::ids, low, classes, false};
}

std::vector<Var> outputs(const CrossEntropy& loss) {
  return {loss.sum, Var(loss.per_row)};
}

std::vector<OpCase> cross_entropy_cases() {
  const auto run = [](Ctx& c, Inputs in) {
    return outputs(cross_entropy(c, in[0], in[1].value()));
  };
  return {
      {.name = "5 classes", .inputs = {real({4, 5}), targets({4}, 5)}, .run = run},
      {.name = "some rows ignored",
       .inputs = {real({5, 7, 4}, 3), targets({5, 7}, 4, -1)},
       .run = run},
      {.name = "large logits", .inputs = {real({3, 19}, 30), targets({3}, 19)}, .run = run},
  };
}

OpCase head_case(std::string name, CaseInput x, CaseInput w, CaseInput t, std::int64_t chunk_rows) {
  OpCase out;
  out.name = std::move(name);
  out.flops = 2 * static_cast<double>(x.shape.numel() * w.shape[0]);
  out.inputs = {x, w, t};
  out.run = [chunk_rows](Ctx& c, Inputs in) {
    return outputs(
        linear_cross_entropy(c, in[0], in[1], in[2].value(), {.chunk_rows = chunk_rows}));
  };
  out.composition = [](Ctx& c, Inputs in) {
    return outputs(cross_entropy(c, linear(c, in[0], in[1], {}), in[2].value()));
  };
  return out;
}

std::vector<OpCase> linear_cross_entropy_cases() {
  return {
      head_case("one chunk", real({2, 3, 8}), parameter({11, 8}), targets({2, 3}, 11), 4096),
      head_case("several chunks, the last short", real({11, 6}), parameter({9, 6}),
                targets({11}, 9), 4),
      head_case("chunks with rows ignored", real({3, 9, 6}), parameter({4, 6}),
                targets({3, 9}, 4, -1), 5),
      head_case("computed weight", real({4, 6}), real({7, 6}), targets({4}, 7), 4096),
      head_case("a frozen body", {{5, 6}, Kind::real, -1, 1, false}, parameter({7, 6}),
                targets({5}, 7), 2),
  };
}

}  // namespace

OpList loss_ops();
OpList loss_ops() {
  const auto spec = [](std::string_view name, std::string_view summary,
                       std::vector<OpCase> (*cases)()) {
    return OpSpec{name,
                  summary,
                  "src/autograd/ops/loss.h",
                  "src/autograd/ops/loss.cpp",
                  "src/kernels/loss.h",
                  "src/kernels/cpu/loss.cpp",
                  "src/kernels/cuda/loss.cu",
                  cases};
  };
  return {
      spec("cross_entropy", "softmax cross-entropy of logits", cross_entropy_cases),
      spec("linear_cross_entropy", "cross_entropy(linear(x, w)) in chunks of rows",
           linear_cross_entropy_cases),
  };
}

}  // namespace fovea
