// The layers against arithmetic written out here.

#include <cmath>

#include <doctest/doctest.h>

#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/norm.h"

using namespace fovea;
using namespace fovea::nn;

namespace {

constexpr double kTight = 1e-12;  // f64 sums of a dozen terms

struct World {
  Stream stream{kCpu};
  CachingAllocator pool{memory_source(kCpu)};
  Ctx ctx{.device = kCpu, .stream = stream, .activations = pool, .precision = Precision::fp64};

  // Gives every parameter of `module` values of its own, also those that start at 0 or 1.
  void fill(Module& module) {
    module.set_path("");
    for (Parameter* p : module.parameters()) {
      p->master = Tensor::empty(p->shape, DType::f64, kCpu);
      fill_initial(p->master, Init::normal(0.5), 5, p->path, {});
      p->compute = p->master;
    }
  }
};

std::vector<double> of(Module& module, const std::string& path) {
  for (Parameter* p : module.parameters()) {
    if (p->path == path) return p->master.values();
  }
  FAIL("no parameter ", path);
  return {};
}

const std::vector<double> kRow{0.3, -1.2, 0.7};

Var row() {
  return Var(Tensor::from(kRow, {1, 3}, DType::f64));
}

// y = W x + b for one row.
std::vector<double> affine(const std::vector<double>& w, const std::vector<double>& b,
                           const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    y[o] = b.empty() ? 0 : b[o];
    for (std::size_t i = 0; i < x.size(); ++i)
      y[o] += w[o * x.size() + i] * x[i];
  }
  return y;
}

void check_close(const Var& got, const std::vector<double>& want) {
  const std::vector<double> values = got.value().values();
  REQUIRE(values.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    CHECK(std::abs(values[i] - want[i]) <= kTight);
}

}  // namespace

TEST_CASE("linear multiplies by weight [out, in] and adds the bias") {
  World world;
  Linear linear(3, 4, true, 0.02);
  world.fill(linear);
  check_close(linear.forward(world.ctx, row()),
              affine(of(linear, "weight"), of(linear, "bias"), kRow));
}

TEST_CASE("linear without bias has one parameter") {
  Linear linear(3, 4, false, 0.02);
  CHECK(linear.parameters().size() == 1);
}

TEST_CASE("a gelu mlp is proj of tanh-gelu of fc") {
  World world;
  Mlp mlp({.width = 3, .hidden = 5});
  world.fill(mlp);
  std::vector<double> hidden = affine(of(mlp, "fc.weight"), of(mlp, "fc.bias"), kRow);
  for (double& h : hidden) {
    h = 0.5 * h *
        (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (h + 0.044715 * h * h * h)));
  }
  check_close(mlp.forward(world.ctx, row()),
              affine(of(mlp, "proj.weight"), of(mlp, "proj.bias"), hidden));
  CHECK(mlp.matmul_parameters() == 30);
}

TEST_CASE("a swiglu mlp holds gate's rows before up's") {
  World world;
  Mlp mlp({.kind = MlpConfig::Kind::swiglu, .width = 3, .hidden = 5, .bias = false});
  world.fill(mlp);
  const std::vector<double> both = affine(of(mlp, "gate_up.weight"), {}, kRow);
  std::vector<double> hidden(5);
  for (std::size_t i = 0; i < 5; ++i)
    hidden[i] = both[i] / (1 + std::exp(-both[i])) * both[5 + i];
  check_close(mlp.forward(world.ctx, row()), affine(of(mlp, "proj.weight"), {}, hidden));
  CHECK(mlp.matmul_parameters() == 45);
}

TEST_CASE("a layer norm without bias and an rms norm have one parameter") {
  Norm layer(3, {.bias = false});
  Norm rms(3, {.kind = NormConfig::Kind::rms});
  CHECK(layer.parameters().size() == 1);
  CHECK(rms.parameters().size() == 1);
  CHECK(Norm(3, {}).parameters().size() == 2);
}

TEST_CASE("norms start as the plain normalisation, with the residual sum beside them") {
  World world;
  const Var x = row(), branch = Var(Tensor::from({{0.1, 0.2, -0.4}}, {1, 3}, DType::f64));
  const std::vector<double> sum{0.4, -1.0, 0.3};
  const double mean = -0.1, variance = (0.25 + 0.81 + 0.16) / 3, square = (0.16 + 1 + 0.09) / 3;
  for (const NormConfig::Kind kind : {NormConfig::Kind::layer, NormConfig::Kind::rms}) {
    Norm norm(3, {.kind = kind, .eps = 0.5});
    norm.set_path("");
    for (Parameter* p : norm.parameters()) {
      p->master = p->compute = Tensor::empty(p->shape, DType::f64, kCpu);
      fill_initial(p->master, p->init, 0, p->path, {});
    }
    const ResidualNorm out = norm.forward(world.ctx, x, branch);
    check_close(out.sum, sum);
    std::vector<double> want;
    for (const double s : sum) {
      want.push_back(kind == NormConfig::Kind::layer ? (s - mean) / std::sqrt(variance + 0.5)
                                                     : s / std::sqrt(square + 0.5));
    }
    check_close(out.norm, want);
    check_close(norm.forward(world.ctx, out.sum), want);
  }
}

TEST_CASE("an embedding looks up rows and adds positions") {
  World world;
  Embedding tokens(4, 2, 0.02), positions(3, 2, 0.02);
  world.fill(tokens);
  world.fill(positions);
  const Tensor ids = Tensor::from({{2, 0}}, {1, 2}, DType::i32);
  const std::vector<double> t = of(tokens, "weight"), p = of(positions, "weight");
  check_close(tokens.forward(world.ctx, ids, Var(), Tensor()), {t[4], t[5], t[0], t[1]});
  check_close(tokens.forward(world.ctx, ids, positions.weight().var(), Tensor()),
              {t[4] + p[0], t[5] + p[1], t[0] + p[2], t[1] + p[3]});
}
