#include "attention/contract.h"

#include <algorithm>
#include <map>
#include <string>

#include <doctest/doctest.h>

#include "autograd/ops/attention.h"
#include "config/yaml.h"

using namespace fovea;
using namespace fovea::attention;

namespace {

void check_rows(const std::vector<ContractRow>& rows) {
  CHECK(rows.size() > 10);
  for (const ContractRow& row : rows) {
    CHECK_MESSAGE(row.passed,
                  row.check << ": " << row.value << " > " << row.bound << " " << row.note);
  }
}

// Broken on purpose, to see that the suite notices.
enum class Fault { none, future, neighbour, mass, cost, gradient };

class Broken final : public Attention {
 public:
  Broken(const AttentionConfig& config, Fault fault) : config_(config), fault_(fault) {}
  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    AttentionMask mask;
    mask.causal = config_.causal && fault_ != Fault::future;
    mask.scale = fault_ == Fault::mass ? 0.3 : 0;
    Var k = fault_ == Fault::gradient ? in.k.detached() : in.k;
    if (fault_ == Fault::neighbour &&
        ctx.device.is_cpu()) {  // all samples read the last one's keys
      const Tensor same = Tensor::empty(k.shape(), k.dtype(), kCpu);
      const std::int64_t batch = k.size(0);
      for (std::int64_t b = 0; b < batch; ++b) {
        copy_host(same.slice(0, b, b + 1).view(), k.value().slice(0, batch - 1, batch).view());
      }
      k = Var(same, k.grad());
    }
    const AttentionResult r = flash_attention(ctx, in.q, k, in.v, Var(), mask);
    return {.o = r.o};
  }
  std::string kernel() const override { return "broken"; }

 private:
  AttentionConfig config_;
  Fault fault_;
};

template <Fault fault>
AttentionSpec broken() {
  AttentionSpec spec = *find_attention("standard");
  spec.options = {};
  spec.caps = {.causal = true, .bidirectional = false, .padding = false, .exact = true};
  spec.make = [](const AttentionConfig& config, const config::Node&) -> std::unique_ptr<Attention> {
    return std::make_unique<Broken>(config, fault);
  };
  spec.cost = [](const AttentionConfig& config, const config::Node&, std::int64_t n,
                 std::int64_t m) {
    const config::Node options = config::parse("kernel: tiled", "test");
    Cost cost = find_attention("standard")->cost(config, options, n, m);
    if (fault == Fault::cost) cost.useful_forward *= 2;
    return cost;
  };
  return spec;
}

std::vector<std::string> failures(const AttentionSpec& spec) {
  std::vector<std::string> out;
  for (const ContractRow& row : check_contract(spec)) {
    if (!row.passed) out.push_back(row.check);
  }
  return out;
}

bool names(const std::vector<std::string>& failed, const std::string& part) {
  return std::any_of(failed.begin(), failed.end(), [&](const std::string& check) {
    return check.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("every registered method keeps the contract") {
  for (const AttentionSpec& spec : attention_specs()) {
    CAPTURE(spec.name);
    check_rows(check_contract(spec));
  }
}

TEST_CASE("the materialised kernel of standard keeps the contract") {
  check_rows(
      check_contract(*find_attention("standard"), config::parse("kernel: materialised!", "test")));
}

TEST_CASE("the suite passes an honest method and names what a broken one breaks") {
  CHECK(failures(broken<Fault::none>()).empty());
  CHECK(names(failures(broken<Fault::future>()), "later token"));
  CHECK(names(failures(broken<Fault::neighbour>()), "neighbour"));
  CHECK(names(failures(broken<Fault::mass>()), "exact attention"));
  CHECK(names(failures(broken<Fault::cost>()), "FLOPs"));
  CHECK(names(failures(broken<Fault::gradient>()), "gradient"));
}

TEST_CASE("the capabilities of every method are those of the specification") {
  // baselines.md 19, and whether it decodes. A method that is not listed here fails the test.
  const std::string sound = "gqa convex smooth static_shapes strict ";
  const std::string pattern = sound + "causal bidirectional padding segments bias dropout decode ";
  const std::string kernel = "causal bidirectional cross padding segments any_length decode ";
  const std::map<std::string_view, std::string> expected = {
      {"bigbird", pattern + "anchored"},
      {"cosformer", sound + kernel},
      {"linear", sound + kernel + "decay"},
      {"linformer",
       "gqa smooth static_shapes strict causal bidirectional cross padding dropout decode"},
      {"longformer", pattern + "any_length anchored"},
      {"nystrom", "gqa static_shapes strict bidirectional padding any_length"},
      {"performer", sound + kernel + "decay"},
      {"reformer", "convex smooth causal bidirectional padding dropout any_length"},
      {"rfa", "gqa smooth static_shapes strict " + kernel + "decay"},
      {"scatterbrain", sound + "causal bidirectional padding segments dropout any_length"},
      {"short",
       sound + "causal bidirectional cross padding segments bias dropout any_length decode exact "
               "any_width"},
      {"sparse_transformer", pattern + "any_length anchored"},
      {"standard", sound + "causal bidirectional cross padding segments bias dropout any_length "
                           "decode exact any_width"},
  };
  for (const AttentionSpec& spec : attention_specs()) {
    CAPTURE(spec.name);
    REQUIRE(expected.count(spec.name) == 1);
    const std::string has = " " + expected.at(spec.name) + " ";
    for (const auto& [flag, set] : flags(spec.caps)) {
      CAPTURE(flag);
      CHECK(set == (has.find(" " + std::string(flag) + " ") != std::string::npos));
    }
  }
}
