// Every pattern and scope of SPA, every gate and way to learn, keeps the contract.

#include "spa_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

// At the unbiased scale: the published one doubles the logits of heads of 16, and with them the
// errors of 16 bits.
void keeps_the_contract(const std::string& choice) {
  const std::string options = cat("{score_scale: inv_sqrt_dk, ", choice, "}");
  CAPTURE(options);
  const std::vector<ContractRow> rows =
      check_contract(*find_attention("spa"), config::parse(options, "test"));
  CHECK(rows.size() > 20);
  for (const ContractRow& row : rows) {
    CHECK_MESSAGE(row.passed, options << ": " << row.check << ": " << row.value << " > "
                                      << row.bound << " " << row.note);
  }
}

}  // namespace

// The contract's heads are 4, 8 and 16 wide, two of them side by side for model and single.
TEST_CASE("every pattern keeps the contract in every scope") {
  const char* const patterns[] = {"pattern: random_iid, s: 2",
                                  "pattern: random_exact, s: 2",
                                  "pattern: block, b_r: 2, b_c: 2, sparsity: 0.5",
                                  "pattern: banded, w: 4",
                                  "pattern: hierarchical, levels: 1",
                                  "pattern: conv, w: 4",
                                  "pattern: given"};
  for (const auto& [scope, width] :
       {std::pair("layer", 4), {"head", 4}, {"model", 8}, {"single", 8}}) {
    for (const char* pattern : patterns)
      keeps_the_contract(cat(pattern, ", proj_dim: ", width, ", proj_scope: ", scope));
  }
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
