// BigBird: baselines.md 7.

#include <algorithm>
#include <set>

#include "attention/bigbird/pattern.h"
#include "attention/contract.h"
#include "contract_rows.h"
#include "core/error.h"
#include "core/text.h"
#include "method_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

AttentionConfig model(bool causal, int max_len = 83) {
  AttentionConfig config;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.n_embd = 32;
  config.qk_dim = 8;
  config.v_dim = 6;
  config.max_len = max_len;
  config.causal = causal;
  return config;
}

config::Node options(const std::string& text) {
  return config::complete(config::parse(text, "a.yaml"), find_attention("bigbird")->options,
                          "model.attention");
}

using Row = std::vector<std::int64_t>;

// Random blocks of every [head][row], -1 left out.
std::vector<std::vector<Row>> rows_of(const Tensor& blocks) {
  std::vector<std::vector<Row>> out;
  const std::vector<double> values = blocks.values();
  auto at = values.begin();
  for (std::int64_t h = 0; h < blocks.size(0); ++h) {
    out.emplace_back();
    for (std::int64_t i = 0; i < blocks.size(1); ++i) {
      out.back().emplace_back();
      for (std::int64_t e = 0; e < blocks.size(2); ++e, ++at) {
        if (*at >= 0) out.back().back().push_back(static_cast<std::int64_t>(*at));
      }
    }
  }
  return out;
}

Tensor drawn_blocks(const BigBirdPattern& pattern, int heads, std::uint64_t seed = 1,
                    const std::string& name = "layer.blocks") {
  Tensor out = Tensor::empty({heads, pattern.blocks(), pattern.random_blocks()}, DType::i32, kCpu);
  pattern.draw(out, seed, name);
  return out;
}

// The table of section 7 and the causal rule below it, word for word.
std::set<std::int64_t> key_blocks(bool causal, std::int64_t n, std::int64_t window, std::int64_t i,
                                  const Row& random) {
  std::set<std::int64_t> out;
  if (causal) {
    out = {0};
    for (std::int64_t b = std::max<std::int64_t>(0, i - window + 1); b <= i; ++b)
      out.insert(b);
  } else if (i == 0 || i == n - 1) {
    for (std::int64_t b = 0; b < n; ++b)
      out.insert(b);
  } else if (i == 1) {
    out = {0, 1, 2, n - 1};
  } else if (i == n - 2) {
    out = {0, n - 3, n - 2, n - 1};
  } else {
    out = {0, i - 1, i, i + 1, n - 1};
  }
  out.insert(random.begin(), random.end());
  return out;
}

Visible visible(bool causal, std::int64_t block, std::int64_t n, std::int64_t window,
                const std::vector<std::vector<Row>>& random) {
  return [=](std::int64_t h, std::int64_t i, std::int64_t j) {
    if (causal && j > i) return false;
    const Row& row = random[static_cast<std::size_t>(h)][static_cast<std::size_t>(i / block)];
    return key_blocks(causal, n, window, i / block, row).count(j / block) != 0;
  };
}

Tensor buffer_of(Attention& method) {
  const std::vector<nn::Buffer*> buffers = method.buffers();
  REQUIRE(buffers.size() == 1);
  CHECK(buffers[0]->path == "layer.blocks");
  return buffers[0]->value;
}

}  // namespace

TEST_CASE("rows have the stated number of distinct random blocks, outside what they see anyway") {
  for (const bool causal : {false, true}) {
    const BigBirdPattern pattern(model(causal), options("{block: 4, random_blocks: 3, "
                                                        "min_length: 0}"));
    const std::int64_t n = pattern.blocks();
    CHECK(n == 21);
    for (const auto& head : rows_of(drawn_blocks(pattern, 4))) {
      for (std::int64_t i = 0; i < n; ++i) {
        const Row& row = head[static_cast<std::size_t>(i)];
        const std::set<std::int64_t> fixed = key_blocks(causal, n, 3, i, {}),
                                     all = key_blocks(causal, n, 3, i, row);
        const bool global_row = !causal && (i == 0 || i == n - 1);
        const std::size_t expected =
            global_row ? 0
            : causal   ? static_cast<std::size_t>(std::clamp<std::int64_t>(i - 3, 0, 3))
                       : 3;
        CHECK(row.size() == expected);
        CHECK(all.size() == fixed.size() + expected);
        for (const std::int64_t block : row) {
          CHECK(block >= 1);
          CHECK(block <= (causal ? i - 3 : n - 2));
          if (!causal && i == 1) CHECK(block != n - 2);
          if (!causal && i == n - 2) CHECK(block != 1);
        }
      }
    }
  }
}

TEST_CASE("both patterns equal dense attention under their masks") {
  for (const bool causal : {false, true}) {
    for (const int block : {3, 10}) {
      CAPTURE(causal);
      CAPTURE(block);
      MethodBench bench("bigbird", model(causal),
                        cat("{block: ", block, ", random_blocks: 2, min_length: 0}"));
      AttentionInput in = bench.tokens(2, 83);
      std::vector<double> valid(2 * 83, 1.0);
      std::fill(valid.end() - 20, valid.end(), 0.0);
      in.key_valid = Tensor::from(valid, {2, 83}, DType::u8);
      const Parts found = parts_of(bench, in, [&](Ctx&) { return bench.forward(in); });
      const Visible mask =
          visible(causal, block, (82 + block) / block, 3, rows_of(buffer_of(*bench.method)));
      check_close(found, parts_of(bench, in, [&](Ctx& ctx) { return masked(ctx, in, mask); }),
                  1e-5);
    }
  }
}

TEST_CASE("the formula counts exactly the pairs of the mask") {
  const AttentionSpec& spec = *find_attention("bigbird");
  for (const bool causal : {false, true}) {
    for (const std::string text :
         {"{block: 3, random_blocks: 2, min_length: 0}", "{block: 10, min_length: 0}",
          "{block: 7, random_blocks: 0, min_length: 0, causal_window_blocks: 4}"}) {
      CAPTURE(text);
      const BigBirdPattern pattern(model(causal), options(text));
      REQUIRE(!pattern.is_exact());
      const Tensor blocks = drawn_blocks(pattern, 1);
      const std::int64_t block = options(text).get_int("block"),
                         window = options(text).get_int("causal_window_blocks");
      const Visible mask = visible(causal, block, pattern.blocks(), window, rows_of(blocks));
      for (const std::int64_t queries : {std::int64_t{83}, std::int64_t{1}}) {
        double pairs = 0;
        for (std::int64_t i = 83 - queries; i < 83; ++i) {
          for (std::int64_t j = 0; j < 83; ++j)
            pairs += mask(0, i, j) ? 1 : 0;
        }
        CHECK(pattern.pairs(queries, 83) == doctest::Approx(pairs).epsilon(1e-12));
        const Cost cost = spec.cost(model(causal), options(text), queries, 83);
        CHECK(cost.useful_forward == doctest::Approx(4 * 2 * pairs * (8 + 6)).epsilon(1e-12));
        CHECK(cost.executed_forward >= cost.useful_forward * (1 - 1e-12));
      }
    }
  }
}

TEST_CASE("an interior row sees 5 + r blocks, a causal one 1 + w + r") {
  AttentionConfig config = model(false, 4096);
  const BigBirdPattern both(config, options(""));
  // 60 interior rows, 2 beside the global ones, whose window touches these, and 2 global ones.
  CHECK(both.pairs(4096, 4096) == 64 * 64 * (60 * 8 + 2 * 7 + 2 * 64));
  config.causal = true;
  const BigBirdPattern causal(config, options("causal_window_blocks: 4"));
  CHECK(causal.pairs(1, 4096) == 8 * 64);
  CHECK(causal.pairs(1, 4096 - 63) == 7 * 64 + 1);
}

TEST_CASE("one seed makes one pattern, and heads, layers and seeds differ") {
  const BigBirdPattern pattern(model(false), options("{block: 4, min_length: 0}"));
  const Tensor once = drawn_blocks(pattern, 2);
  CHECK(once.values() == drawn_blocks(pattern, 2).values());
  CHECK(once.values() != drawn_blocks(pattern, 2, 2).values());
  CHECK(once.values() != drawn_blocks(pattern, 2, 1, "other.blocks").values());
  CHECK(once.slice(0, 0, 1).values() != once.slice(0, 1, 2).values());
  // As the method draws them, with the seed of the run and the path of the buffer.
  MethodBench bench("bigbird", model(false), "{block: 4, min_length: 0}");
  bench.forward(bench.tokens(1, 20));
  CHECK(buffer_of(*bench.method).slice(0, 0, 2).values() == once.values());
}

TEST_CASE("a causal pattern for fewer tokens is the beginning of one for more") {
  const auto causal_rows = [](int max_len) {
    const BigBirdPattern pattern(model(true, max_len), options("block: 4"));
    return rows_of(drawn_blocks(pattern, 2));
  };
  const auto fewer = causal_rows(60), more = causal_rows(83);
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t i = 0; i < fewer[h].size(); ++i)
      CHECK(fewer[h][i] == more[h][i]);
  }
}

TEST_CASE("random blocks may be kept to the first tokens, and then do not move with the length") {
  const auto rows = [](int max_len) {
    const BigBirdPattern pattern(model(false, max_len),
                                 options("{block: 4, min_length: 0, random_range: 40}"));
    return rows_of(drawn_blocks(pattern, 2));
  };
  const auto fewer = rows(83), more = rows(124);
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t i = 2; i + 3 < fewer[h].size(); ++i) {
      CHECK(fewer[h][i] == more[h][i]);
      for (const std::int64_t block : fewer[h][i])
        CHECK(block < 10);
    }
  }
}

TEST_CASE("few blocks or tokens fall back to exact attention, and say so") {
  const auto reason = [](const std::string& text, int max_len) {
    return make_attention(*find_attention("bigbird"), model(false, max_len),
                          config::parse(text, "a.yaml"))
        ->refused();
  };
  CHECK(reason("", 512) == "exact attention: max_len 512 is below min_length 1024");
  CHECK(reason("", 1024).empty());
  CHECK(reason("{block: 16, min_length: 0}", 112) ==
        "exact attention: 7 blocks are fewer than 5 and 3 random ones");
  CHECK(reason("{block: 16, min_length: 0}", 113).empty());

  MethodBench fallen("bigbird", model(false), ""), exact("standard", model(false), "");
  const AttentionInput in = fallen.tokens(1, 83);
  CHECK(fallen.forward(in).o.value().values() == exact.forward(in).o.value().values());
  CHECK(fallen.method->buffers().empty());
}

TEST_CASE("more blocks than lists are made for are refused") {
  const auto made = [](const std::string& text) {
    make_attention(*find_attention("bigbird"), model(true), config::parse(text, "a.yaml"));
  };
  CHECK_THROWS_AS(made("{block: 1, max_len: 1000000000}"), ConfigError);
  CHECK_NOTHROW(made("{block: 1024, max_len: 1000000000}"));
}

TEST_CASE("without random blocks four blocks are exact, and of five rows 1 and 3 miss one each") {
  AttentionConfig config = model(false, 20);
  MethodBench exact("standard", config, "");
  const AttentionInput in = exact.tokens(1, 20);
  const std::vector<double> expected = exact.forward(in).o.value().values();
  for (const int block : {5, 4}) {
    MethodBench bench("bigbird", config,
                      cat("{block: ", block, ", random_blocks: 0, min_length: 0}"));
    const std::vector<double> found = bench.forward(in).o.value().values();
    for (std::size_t e = 0; e < found.size(); ++e) {
      const std::size_t row = e / 6 % 20 / static_cast<std::size_t>(block);
      const bool misses = block == 4 && (row == 1 || row == 3);
      CHECK((found[e] == expected[e]) == !misses);
    }
  }
}

TEST_CASE("a decoder may ask for dense attention") {
  MethodBench dense("bigbird", model(true), "causal_mode: dense"),
      exact("standard", model(true), "");
  const AttentionInput in = dense.tokens(1, 83);
  CHECK(dense.forward(in).o.value().values() == exact.forward(in).o.value().values());
  CHECK(dense.method->refused().empty());
}

TEST_CASE("more tokens than the pattern is made for are refused") {
  MethodBench bench("bigbird", model(true, 64), "block: 4");
  bench.forward(bench.tokens(1, 64));
  CHECK_THROWS_WITH_AS(bench.forward(bench.tokens(1, 65)),
                       "bigbird: 65 tokens, but its pattern is made for 64 "
                       "(model.attention.max_len)",
                       ShapeError);
  CHECK_THROWS_AS(bench.method->start(bench.ctx, 1, 65), ShapeError);
  CHECK_THROWS_WITH_AS(make_attention(*find_attention("bigbird"), model(true, 64),
                                      config::parse("max_len: 63", "a.yaml")),
                       "a.yaml:1:10: model.attention.max_len is 63, but must be at least "
                       "model.block_size (64)",
                       ConfigError);
}

TEST_CASE("blocks that a checkpoint brings are kept, and plans follow them") {
  const std::string text = "{block: 4, random_blocks: 1}";
  MethodBench bench("bigbird", model(true), text), loaded("bigbird", model(true), text);
  const AttentionInput in = bench.tokens(1, 83);
  bench.ctx.seed = 7;
  const std::vector<double> expected = bench.forward(in).o.value().values(),
                            other = loaded.forward(in).o.value().values();
  CHECK(expected != other);
  copy_host(buffer_of(*loaded.method).view(), buffer_of(*bench.method).view());
  CHECK(loaded.forward(in).o.value().values() == expected);
}

TEST_CASE("larger blocks and dense decoders keep the contract too") {
  for (const std::string text : {"{block: 16, random_blocks: 2, min_length: 0}",
                                 "{block: 16, min_length: 0, causal_mode: dense}"}) {
    CAPTURE(text);
    check_rows(check_contract(*find_attention("bigbird"), config::parse(text, "test")));
  }
}
