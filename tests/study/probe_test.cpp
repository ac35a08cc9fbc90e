// What a probe measures: hand-made heads, theorems that hold whatever the tokens, and runs.

#include "study/probe.h"

#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "study/symmetric.h"
#include "train/tiny_run.h"

using namespace fovea;
using namespace fovea::study;
using namespace fovea::test;

namespace {

using Values = std::vector<double>;

Values normals(const std::string& name, std::size_t count) {
  const NamedStream stream(1, name);
  Values out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = stream.normal(i);
  return out;
}

// A head of drawn tokens with an S of one or all patterns' size, kept alive with what it views.
struct Case {
  Values q, k, v, s;
  HeadTokens head;
  Case(std::int64_t n, int width, int projected, bool causal, const std::string& name = "probe")
      : q(normals(name + "q", static_cast<std::size_t>(n * width))),
        k(normals(name + "k", q.size())),
        v(normals(name + "v", static_cast<std::size_t>(n * 5))),
        s(attention::spa::draw_projection({.in = width, .out = projected, .s = 2}, 3, "S")) {
    head = {.queries = n,
            .keys = n,
            .width = width,
            .projected = projected,
            .v_dim = 5,
            .q = q,
            .k = k,
            .v = v,
            .s_q = s,
            .s_k = s,
            .dense_scale = 1 / std::sqrt(static_cast<double>(width)),
            .scale = 1 / std::sqrt(static_cast<double>(projected)),
            .causal = causal};
  }
};

HeadProbe probed(const HeadTokens& head, int threads = 1) {
  Stream stream(kCpu, threads);
  return probe_head(head, stream.ref());
}

double norm(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace

TEST_SUITE("study") {
  TEST_CASE("Jacobi's eigenvalues put a matrix together again, the largest first") {
    constexpr int kN = 7;
    const Values x = normals("matrix", kN * kN);
    const Values a = product(transposed(x, kN, kN), x, kN, kN, kN);
    const Eigen eigen = symmetric_eigen(a, kN);
    Values scaled = eigen.vectors;
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] *= eigen.values[i / kN];
    CHECK(norm(product(transposed(eigen.vectors, kN, kN), scaled, kN, kN, kN), a) < 1e-12);
    CHECK(std::is_sorted(eigen.values.rbegin(), eigen.values.rend()));
    CHECK(norm(symmetric_eigen({2, 1, 1, 2}, 2).values, {3, 1}) < 1e-14);
    CHECK(effective_rank(Values{2, 2, 2, 0}) == doctest::Approx(3));
  }

  TEST_CASE("the worked example of the specification") {
    const Values q = {1, 0, 2, -1, 0, 1, 1, 1}, k = {1, 1, 0, 0, 0, -1, 2, 1}, v = {1, 0, 0, 1},
                 s = {1, 0, 0, 1, 1, 0, 0, -1};
    HeadTokens head{.queries = 2,
                    .keys = 2,
                    .width = 4,
                    .projected = 2,
                    .v_dim = 2,
                    .q = q,
                    .k = k,
                    .v = v,
                    .s_q = s,
                    .s_k = s,
                    .dense_scale = 0.5,
                    .scale = 1 / std::sqrt(2.0),
                    .causal = false};
    const HeadProbe found = probed(head);
    const Values dense = {0.26894142, 0.73105858, 0.37754067, 0.62245933},
                 of_s = {0.5, 0.5, 0.33023845, 0.66976155};
    CHECK(found.attn_frobenius == doctest::Approx(norm(dense, of_s)).epsilon(1e-7));
    CHECK(found.out_err ==
          doctest::Approx(norm(dense, of_s) / norm(dense, Values(4))).epsilon(1e-7));
    // <q,k> are 1, 3; 1, 2 and scores of S 2.828427, 2.828427; 0.707107, 1.414214.
    const Values error = {2.82842712 - 0.5, 2.82842712 - 1.5, 0.70710678 - 0.5, 1.41421356 - 1};
    CHECK(found.score_err_rms == doctest::Approx(norm(error, Values(4)) / 2).epsilon(1e-7));
    CHECK(found.score_err_max == doctest::Approx(error[0]).epsilon(1e-7));
    CHECK(found.attn_tv ==
          doctest::Approx((std::fabs(dense[0] - 0.5) + std::fabs(dense[2] - of_s[2])) / 2)
              .epsilon(1e-7));
    // |<q,k> - <qS,kS>| / (|q| |k|): 4 - 1 over sqrt(6) sqrt(2) is the largest.
    CHECK(found.e0_hat == doctest::Approx(3 / std::sqrt(12.0)));
    CHECK(found.eps_hat == doctest::Approx(2 * error[0] / 8).epsilon(1e-7));
    head.causal = true;
    CHECK(probed(head).attn_frobenius ==
          doctest::Approx(std::sqrt(2.0) * (dense[2] - of_s[2])).epsilon(1e-6));
  }

  TEST_CASE("the numbers of a matrix") {
    const Values s = {1, 0, 1, 0, 0, 1}, none(6);
    const HeadTokens head{
        .width = 3, .projected = 2, .q = {}, .k = {}, .v = {}, .s_q = s, .s_k = s};
    const MatrixProbe found = probe_matrix(head);
    CHECK(found.entries == 3);
    CHECK(found.empty_rows + found.empty_columns == 0);
    CHECK(found.rank == 2);
    CHECK(found.singular[0] == doctest::Approx(std::sqrt(2.0)));
    CHECK(found.singular[1] == doctest::Approx(1));
    CHECK(found.delta2 == doctest::Approx(1));
    CHECK(found.delta_full == doctest::Approx(1));
    const HeadTokens empty{
        .width = 3, .projected = 2, .q = {}, .k = {}, .v = {}, .s_q = none, .s_k = none};
    CHECK(probe_matrix(empty).rank == 0);
    CHECK(probe_matrix(empty).empty_columns == 2);
  }

  TEST_CASE("errors over all pairs are those of the Gram matrices, and at least the best rank's") {
    for (const bool causal : {false, true}) {
      const Case drawn(97, 12, 5, causal);
      const HeadProbe found = probed(drawn.head);
      CHECK(found.closed_rms == doctest::Approx(found.all_pairs_rms).epsilon(1e-10));
      CHECK(found.closed_form_agrees());
      CHECK((found.score_err_rms == doctest::Approx(found.all_pairs_rms).epsilon(1e-10)) ==
            !causal);
      CHECK(found.oracle_rms > 0);
      CHECK(found.oracle_rms < found.all_pairs_rms);
      HeadProbe wrong = found;
      wrong.closed_rms *= 1.001;
      CHECK_FALSE(wrong.closed_form_agrees());
    }
    // The best rank is reached by an S of the leading directions: here, tokens of that rank.
    const Case flat(31, 6, 6, false);
    CHECK(probed(flat.head).oracle_rms == 0);
  }

  TEST_CASE("Lemma 2 holds with one half and is nearly reached; bounds hold, and say little") {
    const Case drawn(64, 16, 4, true);
    const HeadProbe found = probed(drawn.head);
    CHECK(found.softmax_is_half_lipschitz());
    CHECK(found.bounds_hold());
    CHECK(found.vacuous());
    CHECK(found.bound_trivial == doctest::Approx(std::sqrt(128.0)));
    // Two keys, one of which a small error prefers: the ratio tends to 1/2 (times sqrt 2 / sqrt 2).
    const Values q = {1}, k = {0.01, -0.01}, v = {1, 1}, s = {1};
    HeadTokens pair{.queries = 1,
                    .keys = 2,
                    .width = 1,
                    .projected = 1,
                    .v_dim = 1,
                    .q = q,
                    .k = k,
                    .v = v,
                    .s_q = s,
                    .s_k = s,
                    .dense_scale = 1,
                    .scale = 1.1};
    CHECK(probed(pair).lemma2_ratio() == doctest::Approx(0.5).epsilon(1e-3));
    HeadProbe wrong = found;
    wrong.attn_frobenius = 0.51 * wrong.logit_frobenius;
    CHECK_FALSE(wrong.softmax_is_half_lipschitz());
    CHECK_FALSE(wrong.bounds_hold());
  }

  TEST_CASE("S = I leaves nothing, and the printed scale is seen as a gain") {
    const Case drawn(40, 8, 8, false);
    Values eye(64);
    for (std::size_t i = 0; i < 8; ++i)
      eye[i * 9] = 1;
    HeadTokens head = drawn.head;
    head.s_q = head.s_k = eye;
    const HeadProbe same = probed(head);
    CHECK(same.score_err_max == 0);
    CHECK(same.attn_frobenius == 0);
    CHECK(same.s.delta_full == 0);
    CHECK(same.entropy_dense == same.entropy_spa);
    CHECK(same.closed_form_agrees());
    head.scale = 2 * head.dense_scale;
    const HeadProbe hot = probed(head);
    CHECK(hot.logit_gain == doctest::Approx(2));
    CHECK(hot.expected_gain == doctest::Approx(2));
    CHECK(hot.e0_hat == 0);
    CHECK(hot.entropy_spa < hot.entropy_dense);
  }

  TEST_CASE("threads change no bit") {
    const Case drawn(200, 8, 4, true);
    const HeadProbe one = probed(drawn.head), three = probed(drawn.head, 3);
    CHECK(one.attn_frobenius == three.attn_frobenius);
    CHECK(one.score_err_rms == three.score_err_rms);
    CHECK(one.out_err == three.out_err);
    CHECK(one.entropy_spa == three.entropy_spa);
  }

  TEST_CASE("the explicit dimension of Johnson and Lindenstrauss") {
    CHECK(jl_dimension(512, 0.5) == 949);
    CHECK(jl_dimension(64, 0.5) == 649);  // 648.8
  }

  TEST_CASE("patterns are unbiased over seeds, and five standard errors are too many") {
    using attention::spa::PatternKind;
    for (const PatternKind kind : {PatternKind::random_iid, PatternKind::random_exact,
                                   PatternKind::block, PatternKind::banded, PatternKind::conv}) {
      CHECK(unbiased({.kind = kind, .in = 32, .out = 16}, 300).holds());
    }
    CHECK(unbiased({.kind = PatternKind::identity, .in = 8, .out = 8}, 100).worst == 0);
    CHECK_FALSE(Unbiased{.seeds = 300, .worst = 5.1, .why_none = {}}.holds());
  }

  TEST_CASE(
      "few seeds fail no pattern: below a hundred nothing is checked, from there the bound holds") {
    using attention::spa::PatternChoice;
    using attention::spa::PatternKind;
    std::vector<PatternChoice> choices;
    for (const PatternKind kind :
         {PatternKind::random_iid, PatternKind::random_exact, PatternKind::block,
          PatternKind::banded, PatternKind::hierarchical, PatternKind::conv}) {
      for (const bool gaussian : {false, true})
        choices.push_back(
            {.kind = kind, .in = 32, .out = 16, .b_r = 4, .b_c = 4, .gaussian = gaussian});
    }
    choices.push_back({.kind = PatternKind::random_iid, .in = 32, .out = 8, .s = 20});
    choices.push_back({.kind = PatternKind::block, .in = 16, .out = 8, .bernoulli = true});
    for (const PatternChoice& choice : choices) {
      CAPTURE(static_cast<int>(choice.kind));
      REQUIRE_FALSE(attention::spa::misfit_of(choice));
      for (int seeds = 1; seeds <= 12; ++seeds) {
        const Unbiased few = unbiased(choice, seeds);
        CHECK(few.holds());
        CHECK_FALSE(few.worst);
        CHECK_FALSE(few.why_none.empty());
      }
      for (const int seeds : {100, 150, 200, 500, 1000})
        CHECK_MESSAGE(unbiased(choice, seeds).holds(), seeds, ": ", *unbiased(choice, seeds).worst);
    }
  }

  TEST_CASE("a hundred seeds tell a bias from chance, and wide matrices have more room") {
    using attention::spa::PatternKind;
    for (const double scale : {0.95, 1.05}) {
      const auto draw = [&](std::uint64_t seed) {
        auto s = attention::spa::draw_projection(
            {.kind = PatternKind::random_exact, .in = 16, .out = 8}, seed, "biased");
        for (double& x : s)
          x *= scale;
        return s;
      };
      CHECK_FALSE(unbiased(draw, 16, 8, kLeastSeeds).holds());
    }
    // Two features that always share a column and a sign.
    const auto twins = [&](std::uint64_t seed) {
      auto s = attention::spa::draw_projection(
          {.kind = PatternKind::random_exact, .in = 16, .out = 8}, seed, "biased");
      std::copy_n(s.begin(), 8, s.begin() + 8);
      return s;
    };
    CHECK_FALSE(unbiased(twins, 16, 8, kLeastSeeds).holds());
    const Unbiased wide =
        unbiased({.kind = PatternKind::random_exact, .in = 128, .out = 16}, kLeastSeeds);
    CHECK(wide.bound > 5);
    CHECK(wide.bound < 5.5);
    CHECK(unbiased({.kind = PatternKind::random_exact, .in = 64, .out = 16}, kLeastSeeds).bound ==
          5);
  }

  TEST_CASE("a run is probed with its own S, or with one drawn for it") {
    const TemporaryFolder temporary;
    const std::string folder = temporary.path("run");
    run_tiny(folder, {"model.attention={kind: spa, pattern: learn, proj_dim: 8, gate: score}",
                      "train.max_steps=4", "ckpt.interval=4"});
    Stream stream(kCpu);
    const ProbeResult own = probe(stream, {.tokens = {.path = folder}, .seconds = 0.001});
    REQUIRE(own.layers.size() == 2);
    CHECK(own.layers[0].heads.size() == 2);
    CHECK(own.layers[0].s == "its own, learn 16 x 8");
    CHECK_FALSE(own.layers[0].unbiased);
    CHECK(own.layers[0].speed.forward_ms > 0);
    CHECK(own.layers[0].speed.forward_limit == doctest::Approx(32.0 / 24));
    CHECK(own.passed());
    const auto heads = nlohmann::json::parse(heads_json(own));
    CHECK(heads.size() == 4);
    CHECK(heads[3]["layer"] == 1);
    CHECK(heads[3]["S_stats"]["singular_values"].size() == 8);
    CHECK(nlohmann::json::parse(layers_json(own))[1]["speed"].contains("tflops"));
    CHECK(text_of(own).find("hold in every head") != std::string::npos);

    ProbeAsk drawn{.tokens = {.path = folder,
                              .layers = {1},
                              .example = 3,
                              .options = {"pattern=block", "b_r=4", "b_c=4", "proj_dim=8"}},
                   .seconds = 0,
                   .seeds = 120};
    const ProbeResult block = probe(stream, drawn);
    REQUIRE(block.layers.size() == 1);
    CHECK(block.layers[0].layer == 1);
    CHECK(block.layers[0].s == "drawn here, block 16 x 8");
    CHECK(block.layers[0].heads[0].expected_gain == doctest::Approx(1));
    CHECK(block.layers[0].unbiased->seeds == 120);
    CHECK(nlohmann::json::parse(layers_json(block))[0]["standard_errors"].is_number());
    drawn.seeds = 2;
    const ProbeResult few = probe(stream, drawn);
    CHECK(few.passed());
    CHECK(nlohmann::json::parse(layers_json(few))[0]["standard_errors"].is_null());
    CHECK(text_of(few).find("not checked: a mean of 2 seeds says nothing") != std::string::npos);
    CHECK(text_of(few).find("from d' = 450 on") != std::string::npos);
    const ProbeResult wide =
        probe(stream, {.tokens = {.path = folder, .options = {"proj_scope=single", "proj_dim=8"}},
                       .seconds = 0,
                       .seeds = 0});
    CHECK(wide.layers[0].heads.size() == 1);
    CHECK(wide.layers[0].speed.dense.qk_dim == 32);
    CHECK(wide.passed());
    drawn.tokens.options = {"pattern=learn"};
    CHECK_THROWS_WITH_AS(probe(stream, drawn), doctest::Contains("trained"), ConfigError);
    drawn.tokens.options = {"proj_scope=model", "proj_dim=8"};
    CHECK_THROWS_WITH_AS(probe(stream, drawn), doctest::Contains("proj_scope is model"),
                         ConfigError);
    drawn.tokens.options = {};
    drawn.tokens.layers = {2};
    CHECK_THROWS_WITH_AS(probe(stream, drawn), doctest::Contains("no layer 2"), ConfigError);
    drawn.tokens.layers = {};
    drawn.tokens.example = 24;
    CHECK_THROWS_WITH_AS(probe(stream, drawn), doctest::Contains("no example 24"), ConfigError);
  }

  TEST_CASE("a run without S is probed with SPA's defaults, grouped heads too") {
    const TemporaryFolder temporary;
    const std::string folder = temporary.path("run");
    run_tiny(folder, {"train.max_steps=1", "model.position=rope", "model.n_kv_head=1"});
    Stream stream(kCpu);
    const ProbeResult found = probe(stream, {.tokens = {.path = folder}, .seconds = 0, .seeds = 0});
    CHECK(found.layers[0].s == "drawn here, random_exact 16 x 32");
    CHECK(found.passed());
  }

  TEST_CASE("attention without keys of its own cannot be probed") {
    const TemporaryFolder temporary;
    const std::string folder = temporary.path("run");
    run_tiny(folder, {"train.max_steps=1", "model.attention={kind: reformer, bucket_size: 4}"});
    Stream stream(kCpu);
    CHECK_THROWS_WITH_AS(probe(stream, {.tokens = {.path = folder}, .seconds = 0}),
                         doctest::Contains("reformer, has no queries, keys"), ConfigError);
  }
}
