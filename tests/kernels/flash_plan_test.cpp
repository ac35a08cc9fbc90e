// Attention under a plan against the materialised one under the plan's predicate as a mask.

#include <doctest/doctest.h>

#include "kernels/plan_case.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// The predicate as a bias of 0 and -inf, on top of `base` if defined.
Tensor mask_bias(const PlanCase& c, const Tensor& base) {
  const Sizes& s = c.s;
  std::vector<double> values =
      base.defined() ? base.values()
                     : std::vector<double>(static_cast<std::size_t>(s.b * s.h * s.n * s.m));
  std::size_t at = 0;
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t h = 0; h < s.h; ++h) {
      for (std::int64_t i = 0; i < s.n; ++i) {
        for (std::int64_t j = 0; j < s.m; ++j, ++at) {
          if (!c.sees(b, h, i, j, true)) values[at] = kHidden;
        }
      }
    }
  }
  return Tensor::from(values, {s.b, s.h, s.n, s.m}, DType::f64);
}

Tensor wide(const Tensor& x) {
  return Tensor::from(x.values(), x.shape(), DType::f64);
}

// Runs both; the largest distance of any result.
double error_of(PlanCase& c, Problem& tiled) {
  tiled.how.causal = c.causal;
  tiled.how.key_valid = c.masks.key_valid;
  tiled.how.query_valid = c.masks.query_valid;
  tiled.how.query_segments = c.masks.query_segments;
  tiled.how.key_segments = c.masks.key_segments;
  tiled.how.plan = &c.plan;
  tiled.run_flash();
  Problem reference(c.s, DType::f64);
  for (const auto& [to, from] :
       {std::pair(&reference.q, &tiled.q), std::pair(&reference.k, &tiled.k),
        std::pair(&reference.v, &tiled.v), std::pair(&reference.dout, &tiled.dout),
        std::pair(&reference.dlse, &tiled.dlse)})
    *to = wide(*from);
  reference.how.softcap = tiled.how.softcap;
  reference.how.dropout = tiled.how.dropout;
  reference.how.dropout_key = tiled.how.dropout_key;
  Tensor slopes;
  if (tiled.how.alibi_slopes) {
    std::vector<double> values;
    for (std::int64_t h = 0; h < c.s.h; ++h)
      values.push_back(std::pow(0.5, h + 1));
    slopes = mask_tensor({c.s.h}, DType::f64, values);
    reference.how.alibi_slopes = slopes.view();
  }
  reference.bias = mask_bias(c, tiled.bias);
  reference.run_reference();
  const std::vector<Tensor> a = tiled.results(), b = reference.results();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, distance(a[i], b[i]));
  return worst;
}

PlanCase small_case(const Sizes& s, const TileRule& rule) {
  PlanCase c;
  c.s = s;
  c.rules = {rule};
  return c;
}

}  // namespace

TEST_CASE("1,000 random plans give the masked dense results, forward and backward") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    PlanCase c = random_case(seed);
    REQUIRE(c.covered());
    c.build();
    const bool narrow = seed % 2 == 0;
    const DType dtype = narrow ? DType::f32 : DType::f64;
    Problem tiled(c.s, dtype);
    std::vector<double> values;
    for (std::int64_t h = 0; h < c.s.h; ++h)
      values.push_back(std::pow(0.5, h + 1));
    const Tensor slopes = mask_tensor({c.s.h}, acc_of(dtype), values);
    if (seed % 5 == 0) tiled.how.alibi_slopes = slopes.view();
    if (seed % 7 == 0) {
      tiled.how.dropout = 0.2;
      tiled.how.dropout_key = {11, seed, nullptr};
    }
    if (seed % 6 == 1) tiled.how.softcap = 1.5;
    if (seed % 3 == 0) tiled.bias = random_tensor({c.s.b, c.s.h, c.s.n, c.s.m}, "bias", dtype);
    // In f32 the gradients of rows that see few keys cancel; f64 shows that they are right.
    CHECK(error_of(c, tiled) <= (narrow ? 1e-4 : 1e-12));
  }
}

TEST_CASE("a plan that hides nothing changes no bit, causal or not") {
  for (const bool causal : {false, true}) {
    Problem without(Sizes{2, 4, 2, 150, 170, 16, 24}), with = without;
    PlanCase c = small_case({2, 4, 2, 150, 170, 16, 24}, {});
    c.causal = without.how.causal = with.how.causal = causal;
    c.build();
    with.how.plan = &c.plan;
    without.run_flash();
    with.run_flash();
    for (std::size_t i = 0; i < with.results().size(); ++i)
      CHECK(same_bits(with.results()[i], without.results()[i]));
  }
}

TEST_CASE("with a plan, too, later tokens change no bit of a causal row, nor do threads") {
  TileRule rule;
  rule.left = 40;
  rule.stride = 50;
  rule.first_keys = 3;
  const Sizes s{1, 2, 1, 150, 150, 16, 16};
  PlanCase c = small_case(s, rule);
  c.causal = true;
  c.build();
  Problem full(s);
  full.how.causal = true;
  full.how.plan = &c.plan;
  Problem threads = full;
  threads.threads = 3;
  full.run_flash();
  threads.run_flash();
  for (std::size_t i = 0; i < full.results().size(); ++i)
    CHECK(same_bits(full.results()[i], threads.results()[i]));
  for (const std::int64_t row : {0, 1, 63, 64, 99, 149}) {
    CAPTURE(row);
    PlanCase decode = small_case({1, 2, 1, 1, row + 1, 16, 16}, rule);
    decode.causal = true;
    decode.build();
    Problem one = decoding_step(full, row);
    one.how.plan = &decode.plan;
    one.run_flash();
    CHECK(same_bits(one.o, full.o.slice(2, row, row + 1)));
    CHECK(same_bits(one.lse, full.lse.slice(2, row, row + 1)));
  }
}

TEST_CASE("under a plan what hidden tokens hold has no effect, and rows that see nothing are 0") {
  const Sizes s{2, 2, 1, 130, 130, 8, 8};
  PlanCase c = small_case(s, {});
  c.rules[0].left = c.rules[0].right = 20;
  c.rules[0].key_lengths = c.ints({2}, {100, 0}).data<std::int32_t>();
  c.rules[0].query_lengths = c.rules[0].key_lengths;
  c.plan.batches = 2;
  c.build();
  Problem clean(s);
  clean.how.plan = &c.plan;
  Problem dirty = clean;
  for (Tensor* x : {&dirty.q, &dirty.k, &dirty.v, &dirty.dout}) {
    *x = Tensor::from(x->values(), x->shape(), DType::f32);
    for (std::int64_t b = 0; b < 2; ++b) {
      const Tensor hidden = x->slice(0, b, b + 1).slice(2, b == 0 ? 100 : 0, 130);
      const std::vector<double> nan(static_cast<std::size_t>(hidden.numel()),
                                    std::numeric_limits<double>::quiet_NaN());
      copy_host(hidden.view(), Tensor::from(nan, hidden.shape(), DType::f32).view());
    }
  }
  clean.run_flash();
  dirty.run_flash();
  for (std::size_t i = 0; i < clean.results().size(); ++i) {
    CHECK(same_bits(clean.results()[i], dirty.results()[i]));
    for (const double value : clean.results()[i].slice(0, 1, 2).values())
      CHECK(value == (i == 1 ? kHidden : 0.0));
  }
}

TEST_CASE("meta counts a plan's pairs") {
  Stream stream(kMeta);
  const Tensor q = Tensor::empty({2, 4, 8, 16}, DType::f32, kMeta),
               v = Tensor::empty({2, 2, 8, 24}, DType::f32, kMeta);
  TilePlan plan;
  plan.pairs = 11;
  AttentionScores how;
  how.plan = &plan;
  meta::flash_forward(stream.ref(), v.view(), View{}, q.view(), q.view(), v.view(), how);
  CHECK(stream.cost().flops == 2.0 * 2 * 4 * 11 * (16 + 24));
}
