#include "nn/module.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "nn/embedding.h"
#include "nn/linear.h"

using namespace fovea;
using namespace fovea::nn;

namespace {

struct Pair : Module {
  Pair() {
    own("scale", {3}, Init::ones());
    auto& table = child("table", std::make_unique<Embedding>(5, 3, 0.02));
    child("first", std::make_unique<Linear>(3, 4, true, 0.02));
    child("head", std::make_unique<Linear>(table.shared_weight()));
    buffer("planes", Tensor::from({{1, 2}}, {2}, DType::f32));
  }
};

struct Counting : Module {
  int before = 0, after = 0;
  void before_step(Ctx& /*ctx*/, const Clock& clock) override {
    before += static_cast<int>(clock.step);
  }
  void after_step(Ctx& /*ctx*/, const Clock& clock) override {
    after += static_cast<int>(clock.step);
  }
};

struct Nest : Module {
  Nest() { child("inner", std::make_unique<Module>()); }
  Counting& counting = child("counting", std::make_unique<Counting>());
};

std::vector<std::string> paths_of(Module& module) {
  std::vector<std::string> out;
  module.each_parameter([&](const std::string& path, Parameter&) { out.push_back(path); });
  return out;
}

}  // namespace

TEST_CASE("parameters are visited in registration order, own ones first, a shared one once") {
  Pair pair;
  pair.set_path("");
  CHECK(paths_of(pair) ==
        std::vector<std::string>{"scale", "table.weight", "first.weight", "first.bias"});
}

TEST_CASE("a shared parameter keeps its first path and lists the second as an alias") {
  Pair pair;
  pair.set_path("");
  CHECK(pair.aliases() == std::map<std::string, std::string>{{"head.weight", "table.weight"}});
}

TEST_CASE("naming the root again renames everything below it") {
  Pair pair;
  pair.set_path("");
  pair.set_path("model");
  CHECK(paths_of(pair).front() == "model.scale");
  CHECK(pair.aliases().at("model.head.weight") == "model.table.weight");
  pair.each_buffer([](const std::string& path, Buffer&) { CHECK(path == "model.planes"); });
}

TEST_CASE("step hooks reach every child") {
  Nest nest;
  Stream stream(kCpu);
  CachingAllocator pool(memory_source(kCpu));
  Ctx ctx{kCpu, stream, pool};
  nest.before_step(ctx, {.step = 3});
  nest.after_step(ctx, {.step = 5});
  CHECK(nest.counting.before == 3);
  CHECK(nest.counting.after == 5);
}

TEST_CASE("an initial value depends on seed, path and index alone") {
  const Init init = Init::normal(0.02);
  CHECK(initial_value(init, 1, "a.weight", 7) == initial_value(init, 1, "a.weight", 7));
  CHECK(initial_value(init, 1, "a.weight", 7) != initial_value(init, 2, "a.weight", 7));
  CHECK(initial_value(init, 1, "a.weight", 7) != initial_value(init, 1, "b.weight", 7));
  CHECK(initial_value(init, 1, "a.weight", 7) != initial_value(init, 1, "a.weight", 8));
}

TEST_CASE("filling writes the initial values, alike for any dtype and number of threads") {
  const Init init = Init::uniform(0.5);
  const std::int64_t n = 40000;
  const Tensor single = Tensor::empty({n}, DType::f32, kCpu);
  const Tensor twice = Tensor::empty({n}, DType::f64, kCpu);
  fill_initial(single, init, 3, "p", {});
  Stream threads(kCpu, 3);
  fill_initial(twice, init, 3, "p", threads.ref());
  const std::vector<double> a = single.values(), b = twice.values();
  CHECK(a == b);
  CHECK(a[31234] == initial_value(init, 3, "p", 31234));
}

TEST_CASE("normal initial values have the standard deviation asked for") {
  const Tensor x = Tensor::empty({20000}, DType::f64, kCpu);
  fill_initial(x, Init::normal(0.02), 11, "p", {});
  double sum = 0, squares = 0;
  for (const double v : x.values())
    sum += v, squares += v * v;
  CHECK(sum / 20000 == doctest::Approx(0).epsilon(1).scale(0.0006));  // 4 sigma of the mean
  CHECK(squares / 20000 == doctest::Approx(0.0004).epsilon(0.04));    // 4 sigma of the variance
}

TEST_CASE("a shared parameter of another shape is refused") {
  SharedParameters shared;
  const auto first = shared.get("E", {4, 8}, Init::normal(1), 1);
  CHECK(shared.get("E", {4, 8}, Init::normal(1), 2) == first);
  CHECK(shared.find("F") == nullptr);
  REQUIRE(shared.find("E") != nullptr);
  CHECK(shared.find("E")->parameter == first);
  CHECK(shared.find("E")->layer == 1);
  CHECK_THROWS_WITH_AS(shared.get("E", {4, 9}, Init::normal(1)),
                       "shared parameter E: [4,8] in the first layer, but [4,9] in a later one",
                       ShapeError);
}
