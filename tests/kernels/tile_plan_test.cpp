// What a plan lists against what its rule shows, element by element.

#include "kernels/tile_plan.h"

#include <doctest/doctest.h>

#include "kernels/plan_case.h"

using namespace fovea;
using namespace fovea::test;

namespace {

struct Want {
  std::vector<std::int32_t> full, partial;
};

// The lists of one sample and head, by query tile, or by key tile.
std::vector<Want> wanted(const PlanCase& c, std::int64_t b, std::int64_t h, bool by_key) {
  const std::int64_t q = plan_tiles(c.s.n), k = plan_tiles(c.s.m);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(q * k)), real = seen;
  for (std::int64_t i = 0; i < c.s.n; ++i) {
    for (std::int64_t j = 0; j < c.s.m; ++j) {
      const std::int64_t tile = c.slot_of_query(b, h, i) / 64 * k + c.slot_of_key(b, h, j) / 64;
      real[static_cast<std::size_t>(tile)] += 1;
      seen[static_cast<std::size_t>(tile)] += c.sees(b, h, i, j, c.plan.counts_tokens) ? 1 : 0;
    }
  }
  std::vector<Want> out(static_cast<std::size_t>(by_key ? k : q));
  for (std::int64_t t = 0; t < q * k; ++t) {
    const auto at = static_cast<std::size_t>(t);
    if (seen[at] == 0) continue;
    Want& line = out[static_cast<std::size_t>(by_key ? t % k : t / k)];
    (seen[at] == real[at] ? line.full : line.partial)
        .push_back(static_cast<std::int32_t>(by_key ? t / k : t % k));
  }
  return out;
}

std::vector<Want> listed(std::int64_t one, const View& begin, const View& full,
                         const View& entries) {
  std::vector<Want> out;
  const auto at = [one](const View& view, std::int64_t i) {
    return view.ptr<std::int32_t>()[one * view.dim[1] + i];
  };
  for (std::int64_t t = 0; t < full.dim[1]; ++t) {
    Want& line = out.emplace_back();
    for (std::int32_t e = at(begin, t); e < at(begin, t + 1); ++e)
      (e < at(begin, t) + at(full, t) ? line.full : line.partial).push_back(at(entries, e));
  }
  return out;
}

bool same(const std::vector<Want>& a, const std::vector<Want>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Want& x, const Want& y) {
    return x.full == y.full && x.partial == y.partial;
  });
}

std::int64_t entries(const std::vector<Want>& lines) {
  std::int64_t n = 0;
  for (const Want& line : lines)
    n += static_cast<std::int64_t>(line.full.size() + line.partial.size());
  return n;
}

}  // namespace

TEST_CASE("1,000 random plans list the tiles in which a pair is visible, and mark the full ones") {
  std::int64_t full = 0, partial = 0, hidden = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    PlanCase c = random_case(seed);
    REQUIRE(c.covered());
    c.build();
    for (std::int64_t b = 0; b < c.plan.batches; ++b) {
      for (std::int64_t h = 0; h < c.plan.heads; ++h) {
        const std::int64_t one = b * c.plan.heads + h;
        const std::vector<Want> want = wanted(c, b, h, false);
        CHECK(same(listed(one, c.plan.begin, c.plan.full, c.plan.key_tiles), want));
        CHECK(same(listed(one, c.plan.key_begin, c.plan.key_full, c.plan.query_tiles),
                   wanted(c, b, h, true)));
        CHECK(c.plan.needed.ptr<std::int32_t>()[one] == entries(want));
        CHECK(plan_capacity(c.rules[static_cast<std::size_t>(h)], c.s.n, c.s.m,
                            bool(c.plan.query_order)) >= entries(want));
        for (const Want& line : want) {
          full += static_cast<std::int64_t>(line.full.size());
          partial += static_cast<std::int64_t>(line.partial.size());
        }
        hidden += plan_tiles(c.s.n) * plan_tiles(c.s.m) - entries(want);
      }
    }
  }
  // The cases do cover all three.
  CHECK(full > 500);
  CHECK(partial > 500);
  CHECK(hidden > 500);
}

TEST_CASE("1,000 random plans have every kind of term, order, mask and size many times") {
  std::map<std::string, int> times;
  const auto count = [&times](const char* name, bool set) { times[name] += set ? 1 : 0; };
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const PlanCase c = random_case(seed);
    count("order", bool(c.plan.query_order));
    count("an order a head", c.plan.query_order && c.plan.query_order.dim[1] > 1);
    count("an order a sample", c.plan.query_order && c.plan.query_order.dim[0] > 1);
    count("causal", c.causal);
    count("grouped heads", c.s.h != c.s.hk);
    count("rules of several heads", c.plan.heads > 1);
    count("a plan a sample", c.plan.batches > 1);
    count("counts_tokens", c.plan.counts_tokens);
    count("key_valid", bool(c.masks.key_valid));
    count("query_valid", bool(c.masks.query_valid));
    count("segments", bool(c.masks.query_segments));
    count("odd N", c.s.n % 2 == 1);
    count("N = 1", c.s.n == 1);
    count("N < M", c.s.n < c.s.m);
    count("N > M", c.s.n > c.s.m);
    count("several tiles", c.s.n > 64 && c.s.m > 64);
    for (const TileRule& r : c.rules) {
      count("window", r.left >= 0);
      count("dilation", r.left >= 0 && r.dilation > 1);
      count("stride", r.stride > 0);
      count("period", r.period > 0);
      count("blocks", r.block_left >= 0);
      count("first keys", r.first_keys > 0);
      count("last keys", r.last_keys != kNoToken);
      count("first queries", r.first_queries > 0);
      count("last queries", r.last_queries != kNoToken);
      count("key flags", r.key_flags != nullptr);
      count("query flags", r.query_flags != nullptr);
      count("list", r.list != nullptr);
      count("words", r.list_words != nullptr);
      count("query lengths", r.query_lengths != nullptr);
      count("key lengths", r.key_lengths != nullptr);
      count("in slots under an order", r.in_slots && c.plan.query_order);
      count("everything", !r.patterned());
    }
  }
  for (const auto& [name, n] : times) {
    CAPTURE(name);
    CHECK(n >= 50);
  }
}

TEST_CASE("a list that does not fit is cut inside its memory, and says what it needs") {
  PlanCase c;
  c.s = {1, 1, 1, 300, 300, 4, 4};
  c.rules.resize(1);
  c.build(7);
  CHECK(c.plan.needed.ptr<std::int32_t>()[0] == 25);
  const std::int32_t* begin = c.plan.begin.ptr<std::int32_t>();
  CHECK(std::vector<std::int32_t>(begin, begin + 6) == std::vector<std::int32_t>{0, 5, 7, 7, 7, 7});
  CHECK(c.plan.key_begin.ptr<std::int32_t>()[5] == 7);
}

TEST_CASE("the published patterns have the published number of keys a row") {
  const auto count = [](const TileRule& rule, std::int64_t n, bool causal, std::int64_t i) {
    TileSight sight;
    sight.rules = &rule;
    sight.queries = sight.keys = static_cast<std::int32_t>(n);
    sight.causal = causal;
    std::int64_t sum = 0;
    for (std::int64_t t = 0; t < plan_tiles(n); ++t)
      sum += __builtin_popcountll(sight.row(0, 0, i, t));
    return sum;
  };
  TileRule local, column, fixed, longformer, bigbird;
  local.left = 127;  // Sparse Transformer, strided: l = 128
  column.stride = 128;
  fixed.block = 128, fixed.block_left = 0;  // fixed: l = 128, c = 32
  fixed.period = 128, fixed.column_from = 96, fixed.column_to = 128;
  longformer.left = longformer.right = 256, longformer.first_keys = longformer.first_queries = 1;
  // BigBird: 16 blocks of 64 with 3 random ones.
  const std::int32_t random[16 * 3] = {-1, -1, -1, 5, 9, 12, 7, 8, 9};
  bigbird.block_left = bigbird.block_right = 1;
  bigbird.first_keys = bigbird.first_queries = 64;
  bigbird.last_keys = bigbird.last_queries = 1024 - 64;
  bigbird.list = random, bigbird.list_width = 3;
  for (const std::int64_t i : {0, 1, 127, 128, 700, 1023}) {
    CHECK(count(local, 1024, true, i) == std::min<std::int64_t>(i + 1, 128));
    CHECK(count(column, 1024, true, i) == i / 128 + 1);
    CHECK(count(fixed, 1024, true, i) ==
          i % 128 + 1 + i / 128 * 32);  // its own block, and the columns of those before
  }
  CHECK(count(longformer, 4096, false, 0) == 4096);
  CHECK(count(longformer, 4096, false, 2000) == 513 + 1);
  CHECK(count(longformer, 4096, false, 100) == 100 + 1 + 256);
  CHECK(count(bigbird, 1024, false, 0) == 1024);
  CHECK(count(bigbird, 1024, false, 1000) == 1024);
  CHECK(count(bigbird, 1024, false, 64) == (3 + 1 + 3) * 64);
  CHECK(count(bigbird, 1024, false, 130) == (3 + 2 + 3) * 64);
}

TEST_CASE("the lists of windows and blocks have room linear in the tokens") {
  TileRule window, blocks;
  window.left = window.right = 256, window.first_keys = window.first_queries = 64;
  blocks.block_left = 1, blocks.block_right = 1, blocks.list_width = 3;
  const std::int32_t none = -1;
  blocks.list = &none;
  for (const TileRule& rule : {window, blocks}) {
    const std::int64_t one = plan_capacity(rule, 16384, 16384, false),
                       two = plan_capacity(rule, 32768, 32768, false);
    CHECK(two <= 2 * one);
    CHECK(two <= 20 * plan_tiles(32768));
  }
}

TEST_CASE("packed flags are the flags, with zeros past the end") {
  std::vector<double> flags(2 * 70);
  for (std::size_t i = 0; i < flags.size(); ++i)
    flags[i] = i % 3 == 0 ? 1 : 0;
  const Tensor bits = Tensor::empty({2, 2}, DType::i64, kCpu);
  Stream stream(kCpu);
  cpu::pack_flags(stream.ref(), bits.view(), mask_tensor({2, 70}, DType::u8, flags).view());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < 128; ++t) {
      const bool want = t < 70 && (b * 70 + t) % 3 == 0;
      CHECK(PlanCase::flag(bits.view().ptr<std::uint64_t>(), 2, b, t) == want);
    }
  }
}
