#include "attention/contract.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "attention/contract/trial.h"
#include "autograd/ops/attention.h"
#include "config/yaml.h"
#include "contract_rows.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::attention;
using fovea::test::check_rows;

namespace {

// Broken on purpose, to see that the suite notices.
enum class Fault {
  none,
  future,
  neighbour,
  mass,
  cost,
  gradient,
  order,
  memory,
  resume,
  zero,
  definition,
  state,
  segments
};

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
    // Something that no buffer holds.
    if (fault_ == Fault::resume) mask.scale = 0.3 + 0.1 * static_cast<double>(steps_);
    if (ctx.device.is_cpu()) break_values(in, k);
    const AttentionResult r = fault_ == Fault::memory
                                  ? reference_attention(ctx, in.q, k, in.v, Var(), mask)
                                  : flash_attention(ctx, in.q, k, in.v, Var(), mask);
    return {.o = r.o};
  }
  void after_step(Ctx&, const nn::Clock&) override { ++steps_; }
  std::string kernel() const override { return "broken"; }

 private:
  void break_values(const AttentionInput& in, Var& k) const {
    if (fault_ != Fault::order && fault_ != Fault::zero) return;
    const Tensor other = contract::clone(k.value());
    if (fault_ == Fault::order) {  // the first key is another one
      const Tensor first = other.slice(2, 0, 1);
      copy_host(first.view(), other.slice(2, k.size(2) - 1, k.size(2)).view());
    }
    if (fault_ == Fault::zero && in.q.value().values()[0] == 0) {
      const Tensor one = other.slice(3, 0, 1);
      const std::vector<double> nan(static_cast<std::size_t>(one.numel()),
                                    std::numeric_limits<double>::quiet_NaN());
      copy_host(one.view(), Tensor::from(nan, one.shape(), DType::f64).view());
    }
    k = Var(other, k.grad());
  }

  AttentionConfig config_;
  Fault fault_;
  int steps_ = 0;
};

template <Fault fault>
AttentionSpec broken() {
  AttentionSpec spec = *find_attention("standard");
  spec.options = {};
  spec.caps_with = nullptr;
  spec.definition = nullptr;
  spec.caps = {.causal = true, .bidirectional = false, .padding = false, .exact = true};
  spec.caps.bidirectional = fault == Fault::order;
  spec.caps.unordered = true;
  spec.caps.decode = fault == Fault::state;
  spec.caps.segments = fault == Fault::segments;
  if (fault == Fault::memory) spec.linear = always_linear;
  if (fault == Fault::definition) {
    spec.definition = [](Attention&, const AttentionConfig&, const config::Node&,
                         const AttentionInput& in) { return contract::clone(in.q.value()); };
  }
  spec.make = [](const AttentionConfig& config, const config::Node&) -> std::unique_ptr<Attention> {
    return std::make_unique<Broken>(config, fault);
  };
  if (fault == Fault::segments) {  // what is promised is refused when it is built
    spec.make = [](const AttentionConfig& config,
                   const config::Node&) -> std::unique_ptr<Attention> {
      if (config.packed) throw ConfigError("packed");
      return std::make_unique<Broken>(config, fault);
    };
  }
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

TEST_CASE("options are judged by what they leave of a method") {
  const std::pair<const char*, const char*> choices[] = {
      {"standard", "softcap: 5"},
      {"standard", "scale: 0.01"},
      {"short", "dim: 8"},
      {"short", "{dim: 4, mode: qk_only}"},
      {"short", "{dim: 16, scale: 0.2}"},
      {"rfa", "gate: true"},
      {"linear", "normaliser: sqrt_n"},
      {"linformer", "renormalise: true"},
      {"sparse_transformer", "combine: fixed_subblocks"}};
  for (const auto& [kind, options] : choices) {
    CAPTURE(kind);
    CAPTURE(options);
    check_rows(check_contract(*find_attention(kind), config::parse(options, "test")));
  }
}

TEST_CASE("a form that options rule out is not tried, and options that rule out all are refused") {
  for (const ContractRow& row :
       check_contract(*find_attention("rfa"), config::parse("gate: true", "test")))
    CHECK((row.check.starts_with("causal: ") || row.family == "refuse"));
  AttentionSpec picky = *find_attention("standard");  // says less than its capabilities
  picky.make = [](const AttentionConfig& config, const config::Node& options) {
    if (config.cross) throw ConfigError("no cross-attention today");
    return find_attention("standard")->make(config, options);
  };
  std::vector<std::string> reasons;
  for (const ContractRow& row : check_contract(picky, config::parse("kernel: tiled", "test"))) {
    CHECK(row.passed);
    if (row.check == "cross: every check") reasons.push_back(row.note);
  }
  CHECK(reasons == std::vector<std::string>{"no cross-attention today"});
  CHECK(names(failures(picky), "cross: every check"));  // nobody chose anything
  CHECK_THROWS_AS(check_contract(*find_attention("short"), config::parse("dim: 999", "test")),
                  ConfigError);
  CHECK_THROWS_AS(check_contract(*find_attention("spa"),
                                 config::parse("{pattern: identity, proj_dim: 29}", "test")),
                  ConfigError);
}

TEST_CASE("the suite passes an honest method and names what a broken one breaks") {
  CHECK(failures(broken<Fault::none>()).empty());
  CHECK(names(failures(broken<Fault::future>()), "later token"));
  CHECK(names(failures(broken<Fault::neighbour>()), "neighbour"));
  CHECK(names(failures(broken<Fault::mass>()), "exact attention"));
  CHECK(names(failures(broken<Fault::cost>()), "FLOPs"));
  CHECK(names(failures(broken<Fault::gradient>()), "gradient"));
  CHECK(names(failures(broken<Fault::order>()), "another order"));
  CHECK(names(failures(broken<Fault::memory>()), "memory's growth"));
  CHECK(names(failures(broken<Fault::memory>()), "FLOPs' growth"));
  CHECK(names(failures(broken<Fault::resume>()), "after a restart"));
  CHECK(names(failures(broken<Fault::zero>()), "inputs of zero"));
  CHECK(names(failures(broken<Fault::definition>()), "its definition"));
  CHECK(names(failures(broken<Fault::state>()), "decoding"));
  CHECK(names(failures(broken<Fault::segments>()), "packed documents is built"));
}

TEST_CASE("what a GPU's checks are, the CPU in its place, every method keeps and faults break") {
  const auto cpu = std::make_shared<contract::Place>(kCpu);
  for (const AttentionSpec& spec : attention_specs()) {
    CAPTURE(spec.name);
    check_rows(check_contract(spec, {}, cpu));
  }
  std::vector<std::string> failed;
  for (const ContractRow& row : check_contract(broken<Fault::gradient>(), {}, cpu)) {
    if (!row.passed) failed.push_back(row.check);
  }
  CHECK(!names(failed, "fp32 is that of fp64"));  // both are wrong alike
  failed.clear();
  for (const ContractRow& row : check_contract(broken<Fault::mass>(), {}, cpu)) {
    if (!row.passed) failed.push_back(row.check);
  }
  CHECK(names(failed, "exact attention, f32"));
}

TEST_CASE("what a method promises is what is tried, in the order of the list") {
  std::set<std::string_view> known;
  for (const ContractCheck& check : contract_checks()) {
    CHECK(check.name.size() <= 6);
    CHECK(check.meaning.ends_with('.'));
    CHECK(known.insert(check.name).second);
  }
  const AttentionSpec& spec = *find_attention("linformer");
  std::map<std::string, bool> tried;
  for (const ContractRow& row : check_contract(spec)) {
    const std::string form = row.check.substr(0, row.check.find(':'));
    tried[form + " " + row.family] = row.applicable;
  }
  const std::vector<ContractForm> forms = contract_promises(spec);
  REQUIRE(forms.size() == 3);
  for (const ContractForm& form : forms) {
    CHECK(form.promises.size() == known.size() - 1);  // refusals are of no form
    for (const ContractPromise& promise : form.promises) {
      CAPTURE(form.name);
      CAPTURE(promise.check);
      CHECK(promise.promised == promise.why.empty());
      const auto found = tried.find(std::string(form.name) + " " + std::string(promise.check));
      CHECK((found != tried.end()) == promise.in_form);
      if (found != tried.end()) CHECK(found->second == promise.promised);
    }
  }
}

TEST_CASE("the capabilities of every method are those of the specification") {
  // baselines.md 19, and whether it decodes. A method that is not listed here fails the test.
  const std::string sound = "gqa convex smooth static_shapes strict ";
  const std::string pattern = sound + "causal bidirectional padding segments bias dropout decode ";
  const std::string kernel = "causal bidirectional cross padding segments decode ";
  const std::map<std::string_view, std::string> expected = {
      {"bigbird", pattern + "anchored"},
      {"cosformer", sound + kernel},
      {"linear", sound + kernel + "any_length decay unordered"},
      {"linformer",
       "gqa smooth static_shapes strict causal bidirectional cross padding dropout decode"},
      {"longformer", pattern + "any_length anchored"},
      {"nystrom", "gqa static_shapes strict bidirectional padding any_length"},
      {"performer", sound + kernel + "any_length decay unordered"},
      {"reformer", "convex smooth causal bidirectional padding dropout any_length"},
      {"rfa", "gqa smooth static_shapes strict " + kernel + "any_length decay unordered"},
      {"scatterbrain", sound + "causal bidirectional padding segments dropout any_length"},
      {"short",
       sound + "causal bidirectional cross padding segments bias dropout any_length decode exact "
               "any_width unordered"},
      {"spa", sound + "causal bidirectional cross padding segments bias dropout any_length decode "
                      "any_width unordered"},
      {"sparse_transformer", pattern + "any_length anchored"},
      {"standard", sound + "causal bidirectional cross padding segments bias dropout any_length "
                           "decode exact any_width unordered"},
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
