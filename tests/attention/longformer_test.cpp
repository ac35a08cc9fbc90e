// Longformer: baselines.md 6.

#include <algorithm>
#include <set>

#include "attention/contract.h"
#include "attention/longformer/pattern.h"
#include "autograd/ops/select.h"
#include "contract_rows.h"
#include "core/error.h"
#include "core/text.h"
#include "method_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

constexpr std::int64_t kTokens = 83;

AttentionConfig model(bool causal) {
  AttentionConfig config;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.n_embd = 32;
  config.qk_dim = 8;
  config.v_dim = 6;
  config.max_len = 128;
  config.causal = causal;
  return config;
}

config::Node options(const std::string& text) {
  return config::complete(config::parse(text, "a.yaml"), find_attention("longformer")->options,
                          "model.attention");
}

// Section 6.1 and 6.2, word for word, for a row that is not global.
Visible window(bool causal, std::int64_t width, std::vector<std::int64_t> dilation,
               std::set<std::int64_t> globals) {
  return [=](std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t s = dilation[static_cast<std::size_t>(h) % dilation.size()];
    if (causal && j > i) return false;
    if (globals.count(j) != 0) return true;
    if ((i - j) % s != 0) return false;
    const std::int64_t t = (i - j) / s;
    return causal ? t >= 0 && t <= width : std::abs(t) <= width / 2;
  };
}

// Both branches, materialised, joined row by row.
AttentionOutput oracle(Ctx& ctx, const AttentionInput& in, bool causal, const Visible& local,
                       const Tensor& mask) {
  AttentionInput second = in;
  second.q = in.q_global;
  second.k = in.k_global;
  second.v = in.v_global;
  const AttentionOutput a = masked(ctx, in, local);
  const AttentionOutput b =
      masked(ctx, second,
             [causal](std::int64_t, std::int64_t i, std::int64_t j) { return !causal || j <= i; });
  return {.o = select_rows(ctx, mask, b.o, a.o), .lse = select_rows(ctx, mask, b.lse, a.lse)};
}

Tensor mask_of(const std::vector<std::set<std::int64_t>>& globals, std::int64_t n) {
  std::vector<double> flags;
  for (const auto& sample : globals) {
    for (std::int64_t i = 0; i < n; ++i)
      flags.push_back(sample.count(i) != 0 ? 1 : 0);
  }
  return Tensor::from(flags, {static_cast<std::int64_t>(globals.size()), n}, DType::u8);
}

}  // namespace

TEST_CASE("windows and listed global tokens equal both dense branches under their masks") {
  struct Case {
    std::string options;
    std::int64_t width;
    std::vector<std::int64_t> dilation;
    std::set<std::int64_t> globals;
  };
  const Case cases[] = {
      {"window: 6", 6, {1}, {}},
      {"{window: 6, dilation: [1, 2, 3, 1]}", 6, {1, 2, 3, 1}, {}},
      {"{window: 4, global_tokens: [0, 1]}", 4, {1}, {0, 1}},
      {"{window: 4, dilation: 2, global_tokens: [70, 5, 5]}", 4, {2}, {5, 70}},
  };
  for (const Case& c : cases) {
    for (const bool causal : {false, true}) {
      CAPTURE(c.options);
      CAPTURE(causal);
      MethodBench bench("longformer", model(causal), c.options);
      AttentionInput in = bench.tokens(2, kTokens);
      std::vector<double> valid(2 * kTokens, 1.0);
      std::fill(valid.end() - 20, valid.end(), 0.0);
      in.key_valid = Tensor::from(valid, {2, kTokens}, DType::u8);
      const Visible local = window(causal, c.width, c.dilation, c.globals);
      const Tensor mask = mask_of({c.globals}, kTokens);
      check_close(parts_of(bench, in, [&](Ctx&) { return bench.forward(in); }),
                  parts_of(bench, in,
                           [&](Ctx& ctx) {
                             return c.globals.empty() ? masked(ctx, in, local)
                                                      : oracle(ctx, in, causal, local, mask);
                           }),
                  1e-5);
    }
  }
}

TEST_CASE("a mask of global tokens is each sample's own, and may change from call to call") {
  for (const bool causal : {false, true}) {
    AttentionConfig config = model(causal);
    config.global_mask = true;
    MethodBench bench("longformer", config, "window: 4");
    AttentionInput in = bench.tokens(2, kTokens);
    const std::vector<std::set<std::int64_t>> masks[] = {{{0}, {3, 66}}, {{}, {1}}};
    Parts found[2];
    for (int call = 0; call < 2; ++call) {
      in.global_mask = mask_of(masks[call], kTokens);
      found[call] = parts_of(bench, in, [&](Ctx&) { return bench.forward(in); });
      // One sample after another, each with its own list.
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto& globals = masks[call][static_cast<std::size_t>(b)];
        const auto sample = [b](const Var& x) { return leaf(x.value().slice(0, b, b + 1)); };
        AttentionInput one;
        one.q = sample(in.q), one.k = sample(in.k), one.v = sample(in.v);
        one.q_global = sample(in.q_global), one.k_global = sample(in.k_global),
        one.v_global = sample(in.v_global);
        const Var o = oracle(bench.ctx, one, causal, window(causal, 4, {1}, globals),
                             mask_of({globals}, kTokens))
                          .o;
        const std::vector<double> expected = o.value().values();
        const std::size_t at = static_cast<std::size_t>(b) * expected.size();
        for (std::size_t i = 0; i < expected.size(); ++i)
          CHECK(std::fabs(found[call].at("o")[at + i] - expected[i]) < 1e-5);
      }
    }
  }
}

TEST_CASE("masks of two calls before one backward pass do not disturb each other") {
  AttentionConfig config = model(false);
  config.global_mask = true;
  MethodBench bench("longformer", config, "window: 4");
  AttentionInput first = bench.tokens(1, kTokens), second = bench.tokens(1, kTokens);
  first.global_mask = mask_of({{0, 40}}, kTokens);
  second.global_mask = mask_of({{80}}, kTokens);
  const Parts alone = parts_of(bench, first, [&](Ctx&) { return bench.forward(first); });
  const Parts together = parts_of(bench, first, [&](Ctx&) {
    AttentionOutput out = bench.forward(first);
    bench.forward(second);
    return out;
  });
  CHECK(together == alone);
}

TEST_CASE(
    "global rows send nothing through their local query, others nothing through a global one") {
  MethodBench bench("longformer", model(false), "{window: 4, global_tokens: [2]}");
  const AttentionInput in = bench.tokens(1, 20);
  const Parts parts = parts_of(bench, in, [&](Ctx&) { return bench.forward(in); });
  for (std::size_t e = 0; e < parts.at("q").size(); ++e) {
    const bool global = e / 8 % 20 == 2;
    CHECK((parts.at("q")[e] == 0) == global);
    CHECK((parts.at("q_global")[e] == 0) == !global);
  }
}

TEST_CASE("a wide window without global tokens is exact, and so are all tokens global") {
  for (const bool causal : {false, true}) {
    MethodBench wide("longformer", model(causal), "window: 166"),
        all("longformer", model(causal),
            "{window: 0, global_tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}"),
        exact("standard", model(causal), "");
    const AttentionInput in = wide.tokens(2, kTokens);
    CHECK(wide.forward(in).o.value().values() == exact.forward(in).o.value().values());
    AttentionInput few = all.tokens(2, 12);
    const std::vector<double> found = all.forward(few).o.value().values();
    few.q = few.q_global, few.k = few.k_global, few.v = few.v_global;
    CHECK(found == exact.forward(few).o.value().values());
  }
}

TEST_CASE("a window of width 0 is the identity on the values, dilated or not") {
  for (const bool causal : {false, true}) {
    AttentionConfig config = model(causal);
    config.n_kv_head = 4;
    MethodBench bench("longformer", config, "{window: 0, dilation: 3}");
    const AttentionInput in = bench.tokens(2, kTokens);
    CHECK(bench.forward(in).o.value().values() == in.v.value().values());
  }
}

TEST_CASE("a token beyond layers * reach * dilation changes nothing") {
  AttentionConfig config = model(false);
  config.n_kv_head = 4;
  config.qk_dim = config.v_dim = 8;
  MethodBench bench("longformer", config, "{window: 4, dilation: 3}");
  const std::int64_t layers = 3, reach = layers * 2 * 3, i = 40;
  const auto stacked = [&](const Tensor& x) {
    Var v(x);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      AttentionInput in;
      in.q = in.k = in.v = v;
      v = bench.forward(in).o;
    }
    return v.value().slice(2, i, i + 1).values();
  };
  const Tensor x = bench.tokens(1, kTokens).q.value();
  const std::vector<double> expected = stacked(x);
  for (const std::int64_t far : {i - reach - 1, i + reach + 1, i - reach, i + reach}) {
    Tensor moved = Tensor::from(x.values(), x.shape(), DType::f32);
    moved.slice(2, far, far + 1).view().ptr<float>()[0] += 1;
    CHECK((stacked(moved) == expected) == (std::abs(far - i) > reach));
  }
}

TEST_CASE("the formula counts exactly the pairs of both branches") {
  const AttentionSpec& spec = *find_attention("longformer");
  const std::string text = "{window: 6, dilation: [1, 2, 3, 1], global_tokens: [0, 33, 34]}";
  const std::set<std::int64_t> globals{0, 33, 34};
  for (const bool causal : {false, true}) {
    const Visible local = window(causal, 6, {1, 2, 3, 1}, globals);
    for (const std::int64_t queries : {kTokens, std::int64_t{50}, std::int64_t{1}}) {
      double pairs = 0;
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = kTokens - queries; i < kTokens; ++i) {
          for (std::int64_t j = 0; j < kTokens; ++j) {
            const bool seen = globals.count(i) != 0 ? !causal || j <= i : local(h, i, j);
            pairs += seen ? 1 : 0;
          }
        }
      }
      const Cost cost = spec.cost(model(causal), options(text), queries, kTokens);
      CHECK(cost.useful_forward == doctest::Approx(2 * pairs * (8 + 6)).epsilon(1e-12));
      CHECK(cost.executed_forward >= cost.useful_forward);
    }
  }
}

TEST_CASE("tiles far from the window are not worked on") {
  AttentionConfig config = model(true);
  config.max_len = 1 << 16;
  const AttentionSpec& spec = *find_attention("longformer");
  const Cost once = spec.cost(config, options("window: 256"), 8192, 8192),
             twice = spec.cost(config, options("window: 256"), 16384, 16384);
  CHECK(twice.executed_forward / once.executed_forward < 2.1);
  CHECK(once.executed_forward < 2 * once.useful_forward);
}

TEST_CASE("projections of global tokens are asked for where there are any") {
  const AttentionSpec& spec = *find_attention("longformer");
  AttentionConfig config = model(true);
  CHECK(spec.projections(config, options("{}")).size() == 3);
  CHECK(spec.projections(config, options("global_tokens: [0]")).size() == 6);
  config.global_mask = true;
  CHECK(spec.projections(config, options("{}")).size() == 6);
  MethodBench bench("longformer", model(true), "global_tokens: [0]");
  AttentionInput in = bench.tokens(1, 5);
  in.q_global = Var();
  CHECK_THROWS_AS(bench.forward(in), ShapeError);
}

TEST_CASE("lists of windows and dilations are taken by layer and by head") {
  AttentionConfig config = model(true);
  config.n_layer = 2;
  config.layer = 1;
  const LongformerPattern both(
      config, options("{window: [2, 4], dilation: [1, [1, 2, 3, 4]], global_tokens: [4, 1, 4]}"));
  REQUIRE(both.windows().size() == 4);
  for (std::int32_t h = 0; h < 4; ++h) {
    CHECK(both.windows()[static_cast<std::size_t>(h)].dilation == h + 1);
    CHECK(both.windows()[static_cast<std::size_t>(h)].left == 4 * (h + 1));
  }
  CHECK(both.globals() == std::vector<std::int64_t>{1, 4});
  config.layer = 0;
  CHECK(LongformerPattern(config, options("{window: [2, 4], dilation: [1, [1, 2, 3, 4]]}"))
            .windows()
            .size() == 1);
}

TEST_CASE("windows, dilations and global tokens that do not fit are refused") {
  const auto refused = [](const std::string& text, int layers = 1) -> std::string {
    AttentionConfig config = model(true);
    config.n_layer = layers;
    try {
      make_attention(*find_attention("longformer"), config, config::parse(text, "a.yaml"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused("window: 5") ==
        "a.yaml:1:9: model.attention.window is 5, but must be even: it is a two-sided width");
  CHECK(refused("window: -2").find("must be an integer in [0, ") != std::string::npos);
  CHECK(refused("window: wide").find("integer") != std::string::npos);
  CHECK(refused("window: [2, 4]", 3).find("one for each of the 3 layers") != std::string::npos);
  CHECK(refused("window: [2, 4]", 2).empty());
  CHECK(refused("dilation: 0").find("in [1, ") != std::string::npos);
  CHECK(refused("dilation: [1, 2]").find("one for each of the 4 heads") != std::string::npos);
  CHECK(refused("dilation: [[1, 2, 1, 1], 3]", 2).empty());
  CHECK(refused("dilation: [[1, 2, 1, 1], 3]", 3).find("3 layers") != std::string::npos);
  CHECK(refused("global_tokens: [0, 128]").find("in [0, 127]") != std::string::npos);
  CHECK(refused("global_tokens: [0.5]").find("integer") != std::string::npos);
}

TEST_CASE("Longformer without global tokens keeps the contract, and packs like its own runs") {
  for (const std::string text :
       {"{window: 8, global_tokens: []}", "{window: 6, dilation: 2, global_tokens: [0]}"}) {
    CAPTURE(text);
    check_rows(check_contract(*find_attention("longformer"), config::parse(text, "test")));
  }
  MethodBench bench("longformer", model(true), "window: 8");
  AttentionInput in = bench.tokens(1, 70);
  std::vector<double> ids(70, 0.0);
  std::fill(ids.begin() + 31, ids.end(), 1.0);
  in.segments = Tensor::from(ids, {1, 70}, DType::i32);
  const Tensor together = bench.forward(in).o.value();
  const auto cut = [](const Var& x) { return Var(x.value().slice(2, 31, 70)); };
  AttentionInput second;
  second.q = cut(in.q), second.k = cut(in.k), second.v = cut(in.v);
  const std::vector<double> alone = bench.forward(second).o.value().values(),
                            packed = together.slice(2, 31, 70).values();
  for (std::size_t i = 0; i < alone.size(); ++i)
    CHECK(std::fabs(alone[i] - packed[i]) < 1e-6);
}
