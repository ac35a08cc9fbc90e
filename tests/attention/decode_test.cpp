#include <cmath>

#include <doctest/doctest.h>

#include "attention/registry.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/random.h"

using namespace fovea;
using namespace fovea::attention;

namespace {

constexpr std::int64_t kTokens = 20;

AttentionConfig config_of(Position position) {
  AttentionConfig config;
  config.n_embd = 32;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.qk_dim = 8;
  config.v_dim = 6;
  config.max_len = 32;
  config.position = position;
  return config;
}

struct Bench {
  Stream stream{kCpu};
  CachingAllocator memory{memory_source(kCpu)};
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  std::unique_ptr<Attention> method;

  explicit Bench(Position position = Position::none)
      : method(make_attention(*find_attention("standard"), config_of(position),
                              config::parse("", "test"))) {
    method->set_path("");
  }
};

Var random_var(Shape shape, const std::string& name) {
  const NamedStream stream(3, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = stream.normal(i);
  return Var(Tensor::from(values, shape, DType::f32));
}

AttentionInput all_tokens() {
  AttentionInput in;
  in.q = random_var({2, 4, kTokens, 8}, "q");
  in.k = random_var({2, 2, kTokens, 8}, "k");
  in.v = random_var({2, 2, kTokens, 6}, "v");
  return in;
}

AttentionInput cut(const AttentionInput& all, std::int64_t from, std::int64_t to) {
  AttentionInput in;
  in.q = Var(all.q.value().slice(2, from, to));
  in.k = Var(all.k.value().slice(2, from, to));
  in.v = Var(all.v.value().slice(2, from, to));
  return in;
}

}  // namespace

TEST_CASE("prefill and single steps give the bits of a full pass, with ALiBi too") {
  for (const Position position : {Position::none, Position::alibi}) {
    Bench bench(position);
    const AttentionInput all = all_tokens();
    const Tensor full = bench.method->forward(bench.ctx, all).o.value();
    const auto state = bench.method->start(bench.ctx, 2, kTokens);
    std::int64_t from = 0;
    for (const std::int64_t count : {7, 1, 1, 3, 8}) {
      const Tensor o =
          bench.method->step(bench.ctx, *state, cut(all, from, from + count)).o.value();
      CHECK(o.values() == full.slice(2, from, from + count).values());
      from += count;
    }
    CHECK(state->length() == kTokens);
    CHECK(state->bytes_per_token() == 2 * (8 + 6) * 4);
  }
}

TEST_CASE("samples with prompts of different lengths decode as if alone") {
  Bench bench;
  const AttentionInput all = all_tokens();
  const auto state = bench.method->start(bench.ctx, 2, kTokens);
  // Sample 0 has 6 prompt tokens, sample 1 has 4; then both get two single tokens.
  AttentionInput prompt = cut(all, 0, 6);
  prompt.key_valid =
      Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 6}, DType::u8);
  const Tensor first = bench.method->step(bench.ctx, *state, prompt).o.value();
  for (const double value : first.slice(0, 1, 2).slice(2, 4, 6).values())
    CHECK(value == 0);
  const AttentionInput next = cut(all, 6, 7);
  const Tensor second = bench.method->step(bench.ctx, *state, next).o.value();

  const auto alone = bench.method->start(bench.ctx, 1, kTokens);
  const auto sample = [](const Var& x) { return Var(x.value().slice(0, 1, 2)); };
  const auto single = [&](AttentionInput in) {
    in.q = sample(in.q);
    in.k = sample(in.k);
    in.v = sample(in.v);
    in.key_valid = Tensor{};
    return in;
  };
  const Tensor alone_first =
      bench.method->step(bench.ctx, *alone, single(cut(all, 0, 4))).o.value();
  const Tensor alone_second = bench.method->step(bench.ctx, *alone, single(next)).o.value();
  CHECK(first.slice(0, 1, 2).slice(2, 0, 4).values() == alone_first.values());
  CHECK(second.slice(0, 1, 2).values() == alone_second.values());
}

TEST_CASE("a reordered state continues the samples it was given") {
  Bench bench;
  const AttentionInput all = all_tokens();
  const auto kept = bench.method->start(bench.ctx, 2, kTokens),
             turned = bench.method->start(bench.ctx, 2, kTokens);
  bench.method->step(bench.ctx, *kept, cut(all, 0, 5));
  bench.method->step(bench.ctx, *turned, cut(all, 0, 5));
  const std::int64_t beams[] = {1, 1, 0};
  turned->reorder(bench.ctx, beams);
  const AttentionInput next = cut(all, 5, 6);
  const auto beam_rows = [&](const Var& x) {
    Shape shape = x.shape();
    shape[0] = 3;
    Tensor out = Tensor::empty(shape, x.dtype(), kCpu);
    for (std::int64_t i = 0; i < 3; ++i)
      copy_host(out.slice(0, i, i + 1).view(), x.value().slice(0, beams[i], beams[i] + 1).view());
    return Var(out);
  };
  AttentionInput three;
  three.q = beam_rows(next.q);
  three.k = beam_rows(next.k);
  three.v = beam_rows(next.v);
  const Tensor expected = bench.method->step(bench.ctx, *kept, next).o.value();
  const Tensor found = bench.method->step(bench.ctx, *turned, three).o.value();
  for (std::int64_t i = 0; i < 3; ++i)
    CHECK(found.slice(0, i, i + 1).values() == expected.slice(0, beams[i], beams[i] + 1).values());
}

TEST_CASE("a full cache, a hole in the new tokens and a foreign shape are refused") {
  Bench bench;
  const AttentionInput all = all_tokens();
  const auto state = bench.method->start(bench.ctx, 2, 8);
  bench.method->step(bench.ctx, *state, cut(all, 0, 6));
  CHECK_THROWS_WITH_AS(bench.method->step(bench.ctx, *state, cut(all, 6, 9)),
                       "decode: sample 0 has 6 tokens and gets 3 more, but the cache holds 8",
                       ShapeError);
  CHECK(state->length() == 6);
  AttentionInput holes = cut(all, 6, 8);
  holes.key_valid = Tensor::from(std::vector<double>{1, 1, 0, 1}, {2, 2}, DType::u8);
  CHECK_THROWS_AS(bench.method->step(bench.ctx, *state, holes), ShapeError);
  AttentionInput narrow = cut(all, 6, 7);
  narrow.k = Var(narrow.k.value().slice(3, 0, 4));
  CHECK_THROWS_AS(bench.method->step(bench.ctx, *state, narrow), ShapeError);
}
