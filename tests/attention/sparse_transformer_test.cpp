// Sparse Transformer: baselines.md 5.

#include <algorithm>

#include "attention/contract.h"
#include "attention/sparse_transformer/pattern.h"
#include "contract_rows.h"
#include "core/error.h"
#include "core/text.h"
#include "method_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

AttentionConfig model(bool causal, int heads = 4) {
  AttentionConfig config;
  config.n_head = heads;
  config.n_kv_head = heads % 2 == 0 ? heads / 2 : heads;
  config.n_embd = heads * 8;
  config.qk_dim = 8;
  config.v_dim = 6;
  config.max_len = 256;
  config.causal = causal;
  return config;
}

config::Node options(const std::string& text) {
  return config::complete(config::parse(text, "a.yaml"),
                          find_attention("sparse_transformer")->options, "model.attention");
}

// The table of section 5, word for word.
bool local(bool strided, bool causal, std::int64_t l, std::int64_t i, std::int64_t j) {
  if (causal && j > i) return false;
  return strided ? std::abs(i - j) < l : i / l == j / l;
}
bool far(bool strided, bool causal, std::int64_t l, std::int64_t c, std::int64_t i,
         std::int64_t j) {
  if (causal && j > i) return false;
  return strided ? (i - j) % l == 0 : j % l >= l - c;
}

struct Case {
  std::string pattern, combine;
  bool causal;
  int heads, layer;
  std::string more = "";
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string pattern : {"strided", "fixed"}) {
    for (const bool causal : {true, false}) {
      out.push_back({pattern, "heads", causal, 4, 0});
      out.push_back({pattern, "heads", causal, 3, 0});
      out.push_back({pattern, "heads", causal, 1, 0});
      out.push_back({pattern, "union", causal, 2, 0});
      out.push_back({pattern, "layers", causal, 2, 2});
      out.push_back({pattern, "layers", causal, 2, 3});
    }
  }
  out.push_back({"fixed", "fixed_subblocks", true, 4, 0, ", granularity: 2"});
  out.push_back({"fixed", "fixed_subblocks", false, 4, 0, ", granularity: 1, groups: 3"});
  return out;
}

constexpr std::int64_t kBlock = 5, kColumns = 2;

Visible visible(const Case& c) {
  return [c](std::int64_t h, std::int64_t i, std::int64_t j) {
    const bool strided = c.pattern == "strided";
    const bool a = local(strided, c.causal, kBlock, i, j),
               b = far(strided, c.causal, kBlock, kColumns, i, j);
    if (c.combine == "union" || (c.combine == "heads" && c.heads == 1)) return a || b;
    if (c.combine == "heads") return h % 2 == 0 ? a : b;
    if (c.combine == "layers") return c.layer % 2 == 0 ? a : b;
    const bool pairs = c.more == ", granularity: 2";
    const std::int64_t g = pairs ? 2 : 1, u = h % (pairs ? 2 : 3), from = kBlock - (u + 1) * g;
    const bool column = j % kBlock >= from && j % kBlock < from + g && (!c.causal || j <= i);
    return a || column;
  };
}

std::string text(const Case& c) {
  return cat("{pattern: ", c.pattern, ", combine: ", c.combine, ", block: ", kBlock,
             ", columns: ", kColumns, c.more, "}");
}

}  // namespace

TEST_CASE("every pattern and combination equals dense attention under its mask") {
  for (const Case& c : cases()) {
    CAPTURE(text(c));
    CAPTURE(c.causal);
    CAPTURE(c.heads);
    AttentionConfig config = model(c.causal, c.heads);
    config.layer = c.layer;
    MethodBench bench("sparse_transformer", config, text(c));
    AttentionInput in = bench.tokens(2, 83);
    std::vector<double> valid(2 * 83, 1.0);
    std::fill(valid.end() - 20, valid.end(), 0.0);
    in.key_valid = Tensor::from(valid, {2, 83}, DType::u8);
    check_close(parts_of(bench, in, [&](Ctx&) { return bench.forward(in); }),
                parts_of(bench, in, [&](Ctx& ctx) { return masked(ctx, in, visible(c)); }), 1e-5);
  }
}

TEST_CASE("far heads of a sequence that ends before the first summary column see nothing") {
  for (const bool causal : {true, false}) {
    CAPTURE(causal);
    AttentionConfig config = model(causal, 2);
    config.n_kv_head = 2;  // each head has an order of its own
    MethodBench bench("sparse_transformer", config, "{block: 128, columns: 32}");
    for (const std::int64_t n : {65, 80, 96, 97}) {
      CAPTURE(n);
      const AttentionInput in = bench.tokens(1, n);
      const Visible seen = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
        return h == 0 ? local(false, causal, 128, i, j) : far(false, causal, 128, 32, i, j);
      };
      check_close(parts_of(bench, in, [&](Ctx&) { return bench.forward(in); }),
                  parts_of(bench, in, [&](Ctx& ctx) { return masked(ctx, in, seen); }), 1e-5);
    }
  }
}

TEST_CASE("the formula counts exactly the pairs of the mask, and no more than the tiles do") {
  const AttentionSpec& spec = *find_attention("sparse_transformer");
  for (const Case& c : cases()) {
    CAPTURE(text(c));
    CAPTURE(c.causal);
    AttentionConfig config = model(c.causal, c.heads);
    config.layer = c.layer;
    for (const std::int64_t queries : {std::int64_t{83}, std::int64_t{1}}) {
      double pairs = 0;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 83 - queries; i < 83; ++i) {
          for (std::int64_t j = 0; j < 83; ++j)
            pairs += visible(c)(h, i, j) ? 1 : 0;
        }
      }
      const Cost cost = spec.cost(config, options(text(c)), queries, 83);
      CHECK(cost.useful_forward == doctest::Approx(2 * pairs * (8 + 6)).epsilon(1e-12));
      CHECK(cost.executed_forward >= cost.useful_forward * (1 - 1e-12));
    }
  }
}

TEST_CASE("a strided row sees min(i + 1, l) local keys and floor(i / l) + 1 far ones") {
  const std::int64_t l = 7;
  AttentionConfig config = model(true, 2);
  for (const int layer : {0, 1}) {
    config.layer = layer;
    const SparseFactors factors(config, options("{pattern: strided, combine: layers, block: 7}"));
    for (std::int64_t i = 0; i < 60; ++i) {
      const double row = factors.pairs(1, i + 1);
      CHECK(row == static_cast<double>(layer == 0 ? std::min(i + 1, l) : i / l + 1));
    }
  }
}

TEST_CASE("two layers, one a factor, reach every earlier token where l divides N") {
  const std::int64_t n = 60, l = 6;
  for (const bool strided : {true, false}) {
    const std::int64_t c = 1;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        bool reached = false;
        for (std::int64_t via = j; via <= i && !reached; ++via) {
          // The upper layer looks far, the lower one locally; for fixed also the other way about.
          reached = (far(strided, true, l, c, i, via) && local(strided, true, l, via, j)) ||
                    (local(strided, true, l, i, via) && far(strided, true, l, c, via, j)) ||
                    local(strided, true, l, i, j);
        }
        CHECK(reached);
      }
    }
  }
}

TEST_CASE("with l >= N the local heads are exact") {
  for (const std::string pattern : {"strided", "fixed"}) {
    for (const bool causal : {true, false}) {
      AttentionConfig config = model(causal);
      MethodBench sparse("sparse_transformer", config,
                         cat("{pattern: ", pattern, ", combine: layers, block: 90}")),
          exact("standard", config, "");
      const AttentionInput in = sparse.tokens(1, 90);
      CHECK(sparse.forward(in).o.value().values() == exact.forward(in).o.value().values());
    }
  }
}

TEST_CASE("a row whose summary columns are all padding is zero and sends nothing") {
  AttentionConfig config = model(false, 1);
  config.layer = 1;
  MethodBench bench("sparse_transformer", config, "{combine: layers, block: 4, columns: 1}");
  AttentionInput in = bench.tokens(1, 8);
  in.key_valid = Tensor::from(std::vector<double>{1, 1, 1, 0, 1, 1, 1, 0}, {1, 8}, DType::u8);
  Parts parts = parts_of(bench, in, [&](Ctx&) { return bench.forward(in); });
  for (const char* name : {"o", "q", "k", "v"}) {
    for (const double value : parts.at(name))
      CHECK(value == 0);
  }
}

TEST_CASE("the other patterns and combinations keep the contract too") {
  for (const char* text : {"{pattern: strided, combine: union, block: 7}",
                           "{combine: fixed_subblocks, block: 8, granularity: 2}"}) {
    CAPTURE(text);
    check_rows(check_contract(*find_attention("sparse_transformer"), config::parse(text, "test")));
  }
}

TEST_CASE("heads that do not share keys keep the contract in another order of tokens") {
  AttentionSpec spec = *find_attention("sparse_transformer");
  spec.caps.gqa = false;
  for (const std::string text : {"{block: 8, columns: 3}", "{pattern: strided, block: 3}"}) {
    CAPTURE(text);
    check_rows(check_contract(spec, config::parse(text, "test")));
  }
}

TEST_CASE("another order of tokens changes no value beyond rounding, and saves most tiles") {
  const std::int64_t n = 300;
  for (const std::string text : {"{pattern: strided, block: 9}", "{pattern: strided, block: 70}",
                                 "{pattern: strided, block: "
                                 "400}",
                                 "{block: 12, columns: 4}", "{block: 70, columns: 6}"}) {
    for (const bool causal : {true, false}) {
      CAPTURE(text);
      CAPTURE(causal);
      AttentionConfig apart = model(causal, 2), grouped = model(causal, 2);
      apart.n_kv_head = 2;  // heads with keys of their own are reordered, others not
      MethodBench bench("sparse_transformer", apart, text),
          plain("sparse_transformer", grouped, text);
      AttentionInput own = bench.tokens(2, n), shared = plain.tokens(2, n);
      const auto twice = [&](const Var& x) {  // the shared head's keys, for both
        Tensor out = Tensor::empty({2, 2, n, x.size(3)}, DType::f32, kCpu);
        for (std::int64_t h = 0; h < 2; ++h)
          copy_host(out.slice(1, h, h + 1).view(), x.view());
        return leaf(out);
      };
      own.k = twice(shared.k);
      own.v = twice(shared.v);
      std::vector<double> valid(static_cast<std::size_t>(2 * n), 1.0);
      std::fill(valid.end() - 77, valid.end(), 0.0);
      own.key_valid = shared.key_valid = Tensor::from(valid, {2, n}, DType::u8);
      Parts found = parts_of(bench, own, [&](Ctx&) { return bench.forward(own); });
      Parts expected = parts_of(plain, shared, [&](Ctx&) { return plain.forward(shared); });
      for (const char* name : {"k", "v"}) {  // gradients of both copies add up
        const std::size_t half = expected.at(name).size() / 2;
        std::vector<double> sum(2 * half);
        for (std::size_t b = 0; b < 2; ++b) {
          for (std::size_t i = 0; i < half; ++i)
            sum[b * half + i] =
                found.at(name)[2 * b * half + i] + found.at(name)[(2 * b + 1) * half + i];
        }
        found[name] = sum;
      }
      check_close(found, expected, 1e-5);
    }
  }
  const AttentionSpec& spec = *find_attention("sparse_transformer");
  AttentionConfig config = model(true, 2);
  const auto executed = [&](int kv_heads, const std::string& text) {
    config.n_kv_head = kv_heads;
    return spec.cost(config, options(text), 8192, 8192).executed_forward;
  };
  CHECK(executed(2, "pattern: strided") < 0.15 * executed(1, "pattern: strided"));
  CHECK(executed(2, "{}") < 0.6 * executed(1, "{}"));
  // As the lists of the plan say.
  for (const std::string text : {"{pattern: strided, block: 9}", "{block: 12, columns: 4}"}) {
    for (const bool causal : {true, false}) {
      config = model(causal, 2);
      config.n_kv_head = 2;
      const SparseFactors factors(config, options(text));
      const PlanShape shape{1, 2, 2, n, n, causal};
      Stream stream(kCpu);
      const PlanOrders orders = factors.orders()(shape);
      const AttentionPlan plan(shape, factors.pattern()(shape), kCpu, stream, orders.query,
                               orders.key);
      CHECK(factors.tiled_pairs(shape) == plan.count_tiled_pairs());
      CHECK(factors.pairs(n, n) == plan.count_pairs());
    }
  }
}

TEST_CASE("options that do not go together are refused with place and reason") {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      make_attention(*find_attention("sparse_transformer"), model(true),
                     config::parse(text, "a.yaml"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(
      refused("block: 16") ==
      "a.yaml:1:1: model.attention.columns is 32, but must be at most model.attention.block (16)");
  CHECK(refused("{block: 16, columns: 17}") ==
        "a.yaml:1:22: model.attention.columns is 17, but must be at most model.attention.block "
        "(16)");
  CHECK(refused("{block: 16, pattern: strided}").empty());
  CHECK(refused("{pattern: strided, combine: fixed_subblocks}").find("pattern: fixed") !=
        std::string::npos);
  CHECK(refused("{combine: fixed_subblocks, granularity: 129}").find("at most") !=
        std::string::npos);
  CHECK(refused("{combine: fixed_subblocks, groups: 5}").find("must fit") != std::string::npos);
  CHECK(refused("{combine: fixed_subblocks, groups: 4}").empty());
  AttentionConfig cross = model(false);
  cross.cross = true;
  CHECK_THROWS_AS(make_attention(*find_attention("sparse_transformer"), cross, config::Node()),
                  ConfigError);
}
