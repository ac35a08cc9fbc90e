// What SPA's options ask of a run, and which of them count for nothing; spa.md 1.5, 1.6.

#include <algorithm>

#include "attention/spa/schedule.h"
#include "core/error.h"
#include "core/text.h"
#include "spa_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;
using spa::LearnChoice;

namespace {

using Words = std::vector<std::string>;

config::Node completed(const std::string& options) {
  return config::complete(config::parse(options, "a.yaml"), find_attention("spa")->options,
                          "model.attention");
}

// Whether it follows the length of the run.
bool scheduled(const std::string& options) {
  return with_options(*find_attention("spa"), completed(options)).caps.scheduled;
}

// Keys that count for nothing, and why the first does not.
std::pair<Words, std::string> idle(const std::string& options, Position position = Position::rope) {
  AttentionConfig config = SpaCase().config;
  config.position = position;
  const config::Node node = completed(options);
  Words keys;
  std::string why;
  for (const std::string& text :
       spa::idle_options(spa::read_settings(config, node), config, node)) {
    const std::string middle = " has no effect ", head = "model.attention.";
    const std::size_t at = text.find(middle);
    REQUIRE(text.find(head) == 0);
    REQUIRE(at != std::string::npos);
    keys.push_back(text.substr(head.size(), at - head.size()));
    if (why.empty()) why = text.substr(at + middle.size());
  }
  return {keys, why};
}

}  // namespace

TEST_CASE("S follows the length of the run unless all that counts is given in steps") {
  CHECK(scheduled("{pattern: learn}"));
  CHECK(scheduled("{pattern: learn, tau_steps: 80}"));
  CHECK(scheduled("{pattern: learn, t1: 90}"));
  CHECK_FALSE(scheduled("{pattern: learn, tau_steps: 80, t1: 90}"));
  CHECK_FALSE(scheduled("{pattern: learn, tau: 0.5, prune_every: 0, regrow: grad}"));
  CHECK_FALSE(scheduled("{pattern: learn, learn_mode: magnitude, t1: 90}"));
  CHECK(scheduled("{pattern: learn, learn_mode: magnitude, t1: 90, regrow: random}"));
  CHECK_FALSE(
      scheduled("{pattern: learn, learn_mode: magnitude, t1: 90, regrow: random, regrow_end: 95}"));
  CHECK_FALSE(scheduled("{pattern: random_exact}"));
}

TEST_CASE("an S that cannot get sparse, or gets so at once, is told of with what to set") {
  const nn::Clock run{0, 1000, 100};
  LearnChoice learn;
  const auto said = [&](const nn::Clock& clock) { return spa::oddities(learn, 8, clock); };
  CHECK(said(run).empty());
  CHECK(said({0, 200, 100}) ==
        Words{"S is pruned from all of its entries to 20 % at once: sparsity rises from step 100 "
              "(model.attention.t0, by default the warm-up) to step 100 (model.attention.t1, by "
              "default half of the run), and model.attention.prune_every is 100; set "
              "model.attention.t0 below t1, or set t1"});
  learn.t1 = 50;
  CHECK(said(run).size() == 1);
  CHECK(said(run)[0].ends_with("set model.attention.t0 below t1, or raise t1"));
  learn.t0 = 10;
  CHECK(said(run)[0].ends_with("model.attention.prune_every is 100; lower the last"));
  learn.prune_every = 10;
  CHECK(said(run).empty());
  learn.t0 = learn.t1 = 50;  // in so many words
  CHECK(said(run).empty());
  learn = LearnChoice();
  learn.prune_every = 2000;
  CHECK(said(run)[0].find("S is never pruned") == 0);
  learn = LearnChoice();
  learn.mode = MaskRule::Kind::magnitude;
  learn.prune_every = 0;
  CHECK(said(run)[0].find("S never gets sparse") == 0);
  learn.rho = 0;
  CHECK(said(run).empty());
  learn = LearnChoice();
  learn.prune_every = 0;  // a penalty and the start make it sparse
  CHECK(said(run).empty());
  learn = LearnChoice();
  learn.min_per_row = 1;
  CHECK(said(run).empty());
  learn.min_per_row = 8;
  CHECK(said(run)[0].find("model.attention.min_per_row (8 of 8) keeps 100 %") == 0);
  learn.min_per_row = 4;
  CHECK(said(run)[0].find("keeps 50 % of the entries of S, so that model.attention.rho (0.8)") !=
        std::string::npos);
}

TEST_CASE("every option of a pattern is told of where another pattern makes nothing of it") {
  const std::string all =
      "s: 4, balance: none, b_r: 4, b_c: 2, sparsity: 0.5, block_mode: bernoulli, w: 8, clip: "
      "true, "
      "w_is_half_band: true, levels: 2, value_dist: gaussian, feature_perm: true, decay: true, "
      "proj_dim: 8";
  const auto counts = [&](const std::string& pattern) {
    const Words found = idle(cat("{pattern: ", pattern, ", ", all, "}")).first;
    Words out;
    for (const char* key : {"s", "balance", "b_r", "b_c", "sparsity", "block_mode", "w", "clip",
                            "w_is_half_band", "levels", "value_dist", "feature_perm", "decay"}) {
      if (std::find(found.begin(), found.end(), key) == found.end()) out.emplace_back(key);
    }
    return out;
  };
  CHECK(counts("random_iid") == Words{"s", "value_dist", "feature_perm"});
  CHECK(counts("random_exact") == Words{"s", "balance", "value_dist", "feature_perm"});
  CHECK(counts("block") ==
        Words{"b_r", "b_c", "sparsity", "block_mode", "value_dist", "feature_perm"});
  CHECK(counts("conv") == Words{"w", "value_dist", "feature_perm"});
  CHECK(counts("identity") == Words{"feature_perm"});
  CHECK(counts("learn") == Words{"decay"});
  CHECK(counts("given") == Words{"decay"});
  CHECK(idle("{pattern: identity, proj_dim: 8, feature_perm: true}", Position::none).first ==
        Words{"feature_perm"});
  CHECK(idle("{pattern: banded, w: 2, clip: true, proj_dim: 8}").first.empty());
  CHECK(idle("{pattern: hierarchical, levels: 1, proj_dim: 8}").first.empty());
}

TEST_CASE("options of learning are told of where nothing learns, draws, prunes or regrows") {
  CHECK(idle("{rho: 0.5, regrow_end: 9}") ==
        std::pair{Words{"rho", "regrow_end"}, std::string("where pattern is not learn")});
  CHECK(idle("{pattern: learn, learn_mode: magnitude, lambda0: 1, tau: 1, tau_min: 0.2}") ==
        std::pair{Words{"lambda0", "tau", "tau_min"},
                  std::string("where learn_mode is magnitude, which draws no masks")});
  CHECK(idle("{pattern: learn, tau: 1, tau_min: 0.2, tau_steps: 5}").first ==
        Words{"tau_min", "tau_steps"});
  CHECK(idle("{pattern: learn, prune_every: 0, regrow: grad, t1: 10, regrow_fraction: 0.1}") ==
        std::pair{Words{"t1", "regrow", "regrow_fraction"},
                  std::string("where prune_every is 0, so that nothing is pruned")});
  CHECK(idle("{pattern: learn, regrow_fraction: 0.1}") ==
        std::pair{Words{"regrow_fraction"}, std::string("where regrow is none")});
  CHECK(idle("{pattern: learn, regrow: grad, regrow_fraction: 0.1, rho: 0.9}").first.empty());
}

TEST_CASE("sizes and sites are told of beside what overrides them") {
  CHECK(idle("{proj_scope: head, proj_dims: [4, 2], proj_dim: 8}") ==
        std::pair{Words{"proj_dim"}, std::string("beside proj_dims")});
  CHECK(idle("{proj_scope: head, proj_dims: [4, 2]}").first.empty());
  CHECK(idle("{proj_dim: 4, rope_site: before_proj}", Position::learned) ==
        std::pair{Words{"rope_site"}, std::string("where model.position is not rope")});
  CHECK(idle("{proj_dim: 4, rope_site: before_proj}").first.empty());
  CHECK(idle("{proj_dim: 4, scale_value: 0.5}").first == Words{"scale_value"});
}
