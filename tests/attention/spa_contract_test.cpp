// Every pattern and scope of SPA, every gate and way to learn, keeps the contract.

#include "contract_rows.h"
#include "skip.h"
#include "spa_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

constexpr const char* kPatterns[] = {"random_iid", "random_exact", "block",
                                     "banded",     "hierarchical", "conv",
                                     "identity",   "learn",        "given"};

void keeps_the_contract(const std::string& choice) {
  const std::string options = cat("{", choice, "}");
  CAPTURE(options);
  const std::vector<ContractRow> rows =
      check_contract(*find_attention("spa"), config::parse(options, "test"));
  CHECK(rows.size() > 20);
  check_rows(rows);
}

}  // namespace

// As on the command line: the suite's heads are as wide as the pattern asks for.
TEST_CASE("every pattern keeps the contract in scope head") {
  for (const char* pattern : kPatterns)
    keeps_the_contract(cat("pattern: ", pattern, ", proj_scope: head"));
}

TEST_CASE("every pattern keeps the contract in the other scopes") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  FOVEA_SKIP("minutes under a sanitizer, and the code of scope head");
#endif
  for (const char* scope : {"layer", "model", "single"}) {
    for (const char* pattern : kPatterns)
      keeps_the_contract(cat("pattern: ", pattern, ", proj_scope: ", scope));
  }
}

TEST_CASE("options of the patterns keep the contract") {
  for (const char* choice :
       {"pattern: random_iid, s: 20", "pattern: block, b_r: 2, b_c: 2, sparsity: 0.5",
        "pattern: block, block_mode: bernoulli", "pattern: banded, w: 4, proj_dim: 8, clip: true",
        "pattern: hierarchical, levels: 1", "pattern: conv, w: 4",
        "proj_scope: head, proj_dims: [4, 2]", "value_dist: gaussian, feature_perm: true",
        "score_scale: inv_sqrt_dk"})
    keeps_the_contract(choice);
}

TEST_CASE("every gate keeps the contract") {
  for (const char* gate : {"output", "score", "proj", "blend"})
    keeps_the_contract(cat("pattern: given, proj_dim: 4, gate: ", gate));
  keeps_the_contract("pattern: learn, learn_mode: concrete, dense_shadow: false, gate: logit");
}

TEST_CASE("every way to learn keeps the contract") {
  for (const char* mode : {"concrete", "concrete_st", "hard_concrete", "magnitude"}) {
    for (const auto& [scope, width] : {std::pair("layer", 4), {"head", 4}, {"single", 8}}) {
      keeps_the_contract(cat("pattern: learn, dense_shadow: false, learn_mode: ", mode,
                             ", proj_dim: ", width, ", proj_scope: ", scope));
    }
  }
  keeps_the_contract("pattern: learn, regrow: grad");
}
