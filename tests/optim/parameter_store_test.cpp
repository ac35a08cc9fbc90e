#include "optim/parameter_store.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "kernels/optim.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

using namespace fovea;
using namespace fovea::optim;

namespace {

struct Tiny : nn::Module {
  Tiny() {
    auto& table = child("wte", std::make_unique<nn::Embedding>(10, 7, 0.02));
    child("blocks.0", std::make_unique<nn::Linear>(7, 7, true, 0.02));
    child("blocks.1", std::make_unique<nn::Linear>(7, 7, true, 0.02));
    child("norm_f", std::make_unique<nn::Norm>(7, nn::NormConfig{}));
    child("head", std::make_unique<nn::Linear>(table.shared_weight()));
    set_path("");
  }
};

struct Kept : nn::Module {
  Kept() {
    own("s", {8}, nn::Init::normal(1)).keep_f32 = true;
    own("w", {8}, nn::Init::normal(1), nn::Decay::yes);
    own("table", {2, 4}, nn::Init::normal(1), nn::Decay::no);
    set_path("");
  }
};

struct World {
  explicit World(Precision precision = Precision::fp32, Device device = kCpu, int threads = 1)
      : stream(device, threads),
        pool(memory_source(device)),
        ctx{.device = device,
            .stream = stream,
            .activations = pool,
            .precision = precision,
            .seed = 4} {}
  Stream stream;
  CachingAllocator pool;
  Ctx ctx;
};

const Segment& segment_of(const ParameterStore& store, const std::string& path) {
  for (const Segment& segment : store.segments()) {
    if (segment.parameter->path == path) return segment;
  }
  FAIL("no segment ", path);
  return store.segments().front();
}

using Globs = std::vector<std::string>;

}  // namespace

TEST_CASE("parameters lie in registration order, each padded to 64 elements, a tied one once") {
  World world;
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::train);
  std::vector<std::string> paths;
  std::vector<std::int64_t> begins;
  for (const Segment& s : store.segments()) {
    paths.push_back(s.parameter->path);
    begins.push_back(s.begin);
  }
  CHECK(paths == std::vector<std::string>{"wte.weight", "blocks.0.weight", "blocks.0.bias",
                                          "blocks.1.weight", "blocks.1.bias", "norm_f.weight",
                                          "norm_f.bias"});
  CHECK(begins == std::vector<std::int64_t>{0, 128, 192, 256, 320, 384, 448});
  CHECK(store.elements() == 512);
  CHECK(store.parameters() == 70 + 2 * (49 + 7) + 14);
}

TEST_CASE(
    "masters hold the initial values, padding is zero, and parameters are views of the buffer") {
  World world;
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::train);
  const std::vector<double> flat = store.masters().values();
  for (const Segment& s : store.segments()) {
    CHECK(s.parameter->master.shape() == s.parameter->shape);
    CHECK(s.parameter->master.view().data ==
          store.masters().slice(0, s.begin, s.begin + 1).view().data);
    for (std::int64_t i = 0; i < s.size; ++i) {
      REQUIRE(flat[static_cast<std::size_t>(s.begin + i)] ==
              nn::initial_value(s.parameter->init, 4, s.parameter->path,
                                static_cast<std::uint64_t>(i)));
    }
    for (std::int64_t i = s.begin + s.size; i % 64 != 0; ++i)
      REQUIRE(flat[static_cast<std::size_t>(i)] == 0);
  }
}

TEST_CASE("fp32 products read the masters themselves; bf16 ones read rounded copies") {
  World plain, mixed(Precision::bf16_mixed);
  Tiny a, b;
  const ParameterStore same(plain.ctx, a, StoreMode::train), other(mixed.ctx, b, StoreMode::train);
  CHECK(same.computes().view().data == same.masters().view().data);
  REQUIRE(other.computes().dtype() == DType::bf16);
  CHECK(other.masters().dtype() == DType::f32);
  CHECK(other.masters().values() == same.masters().values());
  Tensor rounded = Tensor::empty(other.masters().shape(), DType::bf16, kCpu);
  copy_host(rounded.view(), other.masters().view());
  CHECK(other.computes().values() == rounded.values());
}

TEST_CASE("refresh rounds changed masters into the copies, frozen ones included") {
  World world(Precision::fp16_mixed);
  Tiny tiny;
  ParameterStore store(world.ctx, tiny, StoreMode::train, {}, Globs{"norm_f.*"});
  nn::Parameter& weight = *store.segments()[1].parameter;
  nn::Parameter& norm = *store.frozen()[0];
  weight.master.data<float>()[0] = 3;
  norm.master.data<float>()[0] = 5;
  store.refresh(world.ctx);
  CHECK(weight.compute.values()[0] == 3);
  CHECK(norm.compute.values()[0] == 5);
}

TEST_CASE("keep_f32 parameters are never cast") {
  World world(Precision::bf16_mixed);
  Kept kept;
  const ParameterStore store(world.ctx, kept, StoreMode::train);
  CHECK(segment_of(store, "s").keep_f32);
  CHECK(segment_of(store, "s").parameter->compute.dtype() == DType::f32);
  CHECK(segment_of(store, "w").parameter->compute.dtype() == DType::bf16);
}

TEST_CASE("decay follows the parameter's rule, then no_decay globs") {
  World world;
  Kept kept;
  const ParameterStore own_rules(world.ctx, kept, StoreMode::train);
  CHECK_FALSE(segment_of(own_rules, "s").decay);
  CHECK(segment_of(own_rules, "w").decay);
  CHECK_FALSE(segment_of(own_rules, "table").decay);
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::train, Globs{"wte.*"});
  CHECK_FALSE(segment_of(store, "wte.weight").decay);
  CHECK(segment_of(store, "blocks.0.weight").decay);
  CHECK_FALSE(segment_of(store, "blocks.0.bias").decay);
  CHECK(store.decay_mask().values() == std::vector<double>{0, 0, 1, 0, 1, 0, 0, 0});
}

TEST_CASE("factors on the learning rate follow their globs, block by block") {
  World world;
  Tiny tiny;
  const auto factors = [&](const std::vector<optim::LrScale>& scales) {
    const ParameterStore store(world.ctx, tiny, StoreMode::train, {}, {}, {}, scales);
    return store.lr_factors().defined() ? store.lr_factors().values() : std::vector<double>{};
  };
  // wte.weight has two blocks, blocks.0.weight two, its bias one, and so on.
  CHECK(factors({{"blocks.*.weight", 30}, {"*.bias", 0.5}}).size() == 8);
  const ParameterStore store(world.ctx, tiny, StoreMode::train, {}, {}, {},
                             std::vector<optim::LrScale>{{"blocks.*.weight", 30}, {"*.bias", 0.5}});
  const std::vector<double> blocks = store.lr_factors().values();
  for (const Segment& s : store.segments()) {
    const std::string& path = s.parameter->path;
    const double wanted = path.ends_with(".bias")                                   ? 0.5
                          : path.starts_with("blocks.") && path.ends_with("weight") ? 30
                                                                                    : 1;
    CAPTURE(path);
    CHECK(s.lr_factor == wanted);
    for (std::int64_t b = s.begin / 64; b < (s.begin + s.size + 63) / 64; ++b)
      CHECK(blocks[static_cast<std::size_t>(b)] == wanted);
  }
}

TEST_CASE("factors of one need no memory, and globs that agree may overlap") {
  World world;
  Tiny tiny;
  const auto defined = [&](const std::vector<optim::LrScale>& scales) {
    return ParameterStore(world.ctx, tiny, StoreMode::train, {}, {}, {}, scales)
        .lr_factors()
        .defined();
  };
  CHECK_FALSE(defined({}));
  CHECK_FALSE(defined({{"*", 1}, {"wte.*", 1}}));
  CHECK(defined({{"*.weight", 2}, {"wte.*", 2}}));
}

TEST_CASE("globs that give one parameter two factors are refused") {
  World world;
  Tiny tiny;
  const std::vector<optim::LrScale> scales{{"*.weight", 2}, {"wte.*", 0.5}};
  CHECK_THROWS_WITH_AS(
      ParameterStore(world.ctx, tiny, StoreMode::train, {}, {}, {}, scales),
      "optim.lr_scale: '*.weight' and 'wte.*' both match wte.weight, but give it the factors 2 and "
      "0.5",
      ConfigError);
}

TEST_CASE("frozen parameters have values but no gradient, and lie outside the flat buffers") {
  World world;
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::train, {},
                             Globs{"blocks.0.*", "wte.weight"});
  CHECK(store.elements() == 256);
  CHECK(store.frozen().size() == 3);
  for (const nn::Parameter* p : store.frozen()) {
    CHECK(p->grad == nullptr);
    CHECK(p->compute.values()[1] == nn::initial_value(p->init, 4, p->path, 1));
  }
}

TEST_CASE("gradients point into the bound buffer and accept another one later") {
  World world;
  Tiny tiny;
  ParameterStore store(world.ctx, tiny, StoreMode::train);
  const Tensor first = Tensor::empty({store.elements()}, DType::f32, kCpu);
  const Tensor second = Tensor::empty({store.elements()}, DType::f32, kCpu);
  for (const Tensor& flat : {first, second}) {
    store.bind_gradients(flat);
    const Segment& s = store.segments()[3];
    CHECK(s.parameter->grad->is_parameter);
    CHECK(s.parameter->grad->value.view().data == flat.slice(0, s.begin, s.begin + 1).view().data);
    CHECK(s.parameter->grad->value.shape() == s.parameter->shape);
  }
  CHECK(store.gradients().size() == store.segments().size());
  CHECK_THROWS_AS(store.bind_gradients(Tensor::empty({5}, DType::f32, kCpu)), ShapeError);
}

TEST_CASE("an evaluating store has neither gradients nor moments") {
  World world;
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::evaluate);
  CHECK(store.gradients().empty());
  CHECK_FALSE(store.first_moment().defined());
  for (const nn::Parameter* p : tiny.parameters())
    CHECK(p->grad == nullptr);
}

TEST_CASE("a model adopted for evaluation drops the gradients of an earlier store") {
  World world;
  Tiny tiny;
  const ParameterStore trained(world.ctx, tiny, StoreMode::train);
  const ParameterStore store(world.ctx, tiny, StoreMode::evaluate);
  for (const nn::Parameter* p : tiny.parameters())
    CHECK(p->grad == nullptr);
}

TEST_CASE("moments start at zero") {
  World world;
  Tiny tiny;
  const ParameterStore store(world.ctx, tiny, StoreMode::train);
  CHECK(store.first_moment().values() == std::vector<double>(512, 0));
  CHECK(store.second_moment().values() == std::vector<double>(512, 0));
}

TEST_CASE("a glob that matches nothing names the nearest path") {
  World world;
  Tiny tiny;
  CHECK_THROWS_WITH_AS(
      ParameterStore(world.ctx, tiny, StoreMode::train, Globs{"wte.wieght"}),
      "optim.no_decay: 'wte.wieght' matches no parameter of the model; the nearest is 'wte.weight'",
      ConfigError);
  CHECK_THROWS_WITH_AS(
      ParameterStore(world.ctx, tiny, StoreMode::train, {}, Globs{"block.*"}),
      "train.freeze: 'block.*' matches no parameter of the model; the nearest is 'blocks.*'",
      ConfigError);
  CHECK_THROWS_WITH_AS(
      ParameterStore(world.ctx, tiny, StoreMode::train, {}, Globs{"something_else"}),
      "train.freeze: 'something_else' matches no parameter of the model", ConfigError);
  CHECK_THROWS_WITH_AS(
      ParameterStore(world.ctx, tiny, StoreMode::train, {}, {}, {},
                     std::vector<optim::LrScale>{{"wte.wieght", 2}}),
      "optim.lr_scale: 'wte.wieght' matches no parameter of the model; the nearest is 'wte.weight'",
      ConfigError);
}

TEST_CASE("the number of threads does not change initial values") {
  World one, three(Precision::fp32, kCpu, 3);
  Tiny a, b;
  CHECK(ParameterStore(one.ctx, a, StoreMode::evaluate).masters().values() ==
        ParameterStore(three.ctx, b, StoreMode::evaluate).masters().values());
}

TEST_CASE("the store lays out on meta without writing") {
  World world(Precision::bf16_mixed, kMeta);
  Tiny tiny;
  const std::size_t before = persistent_allocator(kMeta).stats().live;
  ParameterStore store(world.ctx, tiny, StoreMode::train);
  CHECK(store.elements() == 512);
  // Masters, two moments, bf16 copies, and the mask, each rounded to the allocator's 512 bytes.
  const std::size_t bytes = persistent_allocator(kMeta).stats().live - before;
  CHECK(bytes >= 512 * (4 + 4 + 4 + 2) + 8);
  CHECK(bytes <= 512 * (4 + 4 + 4 + 2) + 5 * 512);
  store.bind_gradients(Tensor::empty({512}, DType::f32, kMeta));
}

namespace {

struct Tallied : nn::Module {
  Tallied() {
    own("w", {kNormChunk}, nn::Init::normal(1));
    own("sum", {2, 4}, nn::Init::zeros()).tally = true;
    own("v", {3}, nn::Init::normal(1));
    set_path("");
  }
};

}  // namespace

TEST_CASE("a tally takes its gradient as its value, on the rank that holds its moments") {
  for (const bool held : {true, false}) {
    World world;
    Tallied model;
    const ParameterStore store(
        world.ctx, model, StoreMode::train, {}, {}, [held](std::int64_t elements) {
          return held ? MomentRange{kNormChunk, elements} : MomentRange{0, kNormChunk};
        });
    CHECK(store.parameters() == kNormChunk + 3);
    const Tensor gradient =
        Tensor::from(std::vector<double>(static_cast<std::size_t>(store.elements()), 2.5),
                     {store.elements()}, DType::f32);
    store.take_tallies(world.ctx, gradient);
    const Segment& sum = segment_of(store, "sum");
    CHECK(sum.parameter->master.values() == std::vector<double>(8, held ? 2.5 : 0));
    CHECK(gradient.slice(0, sum.begin, sum.begin + 8).values() ==
          std::vector<double>(8, held ? 0 : 2.5));
    CHECK(gradient.slice(0, 0, sum.begin).values() ==
          std::vector<double>(static_cast<std::size_t>(sum.begin), 2.5));
    CHECK(segment_of(store, "v").parameter->master.values() != std::vector<double>(3, 2.5));
  }
}

TEST_CASE("forgetting zeroes the moments of the named elements, those of this rank") {
  World world;
  Tallied model;
  const ParameterStore store(world.ctx, model, StoreMode::train, {}, {}, [](std::int64_t elements) {
    return MomentRange{kNormChunk, elements};
  });
  for (const Tensor& moments : {store.first_moment(), store.second_moment()}) {
    for (std::int64_t i = 0; i < moments.numel(); ++i)
      moments.data<float>()[i] = 3;
  }
  const Segment& v = segment_of(store, "v");
  v.parameter->forget(world.ctx, Tensor::from({{1, 0, 1}}, {3}, DType::u8));
  const std::int64_t at = v.begin - kNormChunk;
  CHECK(store.first_moment().slice(0, at, at + 4).values() == std::vector<double>{3, 0, 3, 3});
  CHECK(store.second_moment().slice(0, at, at + 4).values() == std::vector<double>{3, 0, 3, 3});
  const std::vector<double> all(static_cast<std::size_t>(kNormChunk), 0);
  CHECK_NOTHROW(segment_of(store, "w")
                    .parameter->forget(
                        world.ctx, Tensor::from(all, {kNormChunk}, DType::u8)));  // held elsewhere
  CHECK(store.first_moment().values()[0] == 3);
}
