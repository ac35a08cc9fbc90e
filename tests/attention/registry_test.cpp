#include "attention/registry.h"

#include <cmath>

#include <doctest/doctest.h>

#include "attention/alibi.h"
#include "attention/contract/trial.h"
#include "config/yaml.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::attention;

namespace {

AttentionConfig small() {
  AttentionConfig config;
  config.n_embd = 16;
  config.n_head = 2;
  config.n_kv_head = 1;
  config.qk_dim = config.v_dim = 8;
  config.max_len = 32;
  return config;
}

std::string refusal(const AttentionSpec& spec, const AttentionConfig& config,
                    const std::string& options) {
  try {
    make_attention(spec, config, config::parse(options, "a.yaml"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("methods stand in alphabetical order and are found by name and alias") {
  const std::vector<AttentionSpec>& specs = attention_specs();
  for (std::size_t i = 1; i < specs.size(); ++i)
    CHECK(specs[i - 1].name < specs[i].name);
  REQUIRE(find_attention("standard") != nullptr);
  CHECK(find_attention("exact") == find_attention("standard"));
  CHECK(find_attention("") == nullptr);
  CHECK(find_attention("nystrom2") == nullptr);
}

TEST_CASE("every method has a summary, a source, a cost and documented options") {
  for (const AttentionSpec& spec : attention_specs()) {
    CAPTURE(spec.name);
    CHECK(!spec.summary.empty());
    CHECK(!spec.source.empty());
    CHECK(bool(spec.make));
    CHECK(bool(spec.cost));
    for (const config::Option& option : spec.options)
      CHECK(!option.meaning.empty());
  }
}

TEST_CASE("options are completed and an unknown one names its place and the nearest") {
  const AttentionSpec& spec = *find_attention("standard");
  CHECK(make_attention(spec, small(), config::parse("", "a.yaml"))->kernel() == "tiled");
  CHECK(make_attention(spec, small(),
                       config::parse("{kind: standard, kernel: materialised!}", "a.yaml"))
            ->kernel() == "materialised");
  const std::string what = refusal(spec, small(), "kernle: tiled");
  CHECK(what.find("a.yaml:1:1") != std::string::npos);
  CHECK(what.find("kernel") != std::string::npos);
  CHECK(refusal(spec, small(), "scale: -1").find("scale") != std::string::npos);
  CHECK(refusal(spec, small(), "kernel: fast").find("tiled") != std::string::npos);
}

TEST_CASE("the cap of standard is the same tiled and materialised, and does something") {
  using contract::distance;
  contract::Trial trial{.spec = find_attention("standard"), .causal = true};
  trial = trial.sized(70);
  const contract::Tokens tokens = contract::draw_tokens(trial, "tokens", 2);
  const auto with = [&](const char* options) {
    contract::Trial one = trial;
    one.options = config::parse(options, "a.yaml");
    return contract::run(one, tokens);
  };
  const contract::Outcome tiled = with("softcap: 2"), plain = with("{}"),
                          stored = with("{softcap: 2, kernel: materialised}");
  for (const char* part : {"o", "lse", "grad.q", "grad.k", "grad.v"}) {
    CAPTURE(part);
    CHECK(distance(tiled.at(part), stored.at(part)) <= 1e-5);
    CHECK(distance(tiled.at(part), plain.at(part)) > 1e-2);
  }
  CHECK(refusal(*trial.spec, small(), "softcap: 0").find("softcap") != std::string::npos);
}

TEST_CASE("what a method lacks is refused with place and reason") {
  AttentionSpec spec = *find_attention("standard");
  spec.caps = {
      .causal = false, .bidirectional = true, .gqa = false, .note = "it sums over all tokens"};
  const std::string causal = refusal(spec, small(), "kernel: tiled");
  CHECK(causal ==
        "a.yaml:1:1: model.attention.kind is standard, which has no causal form: it sums over all "
        "tokens");
  AttentionConfig config = small();
  config.causal = false;
  CHECK(refusal(spec, config, "{}").find("grouped heads") != std::string::npos);
  config.n_kv_head = 2;
  CHECK(refusal(spec, config, "{}").empty());
  config.cross = true;
  CHECK(refusal(spec, config, "{}").find("cross-attention") != std::string::npos);
  config.cross = false;
  config.position = Position::alibi;
  CHECK(refusal(spec, config, "{}").find("bias") != std::string::npos);
  config.n_kv_head = 3;
  CHECK(refusal(spec, config, "{}").find("multiple") != std::string::npos);
}

TEST_CASE("ALiBi's slopes are those of the paper, also for 12 heads") {
  const std::vector<double> eight = alibi_slopes(8), twelve = alibi_slopes(12),
                            four = alibi_slopes(4);
  for (std::size_t h = 0; h < 8; ++h) {
    CHECK(eight[h] == std::exp2(-static_cast<double>(h + 1)));
    CHECK(twelve[h] == eight[h]);
  }
  const double rest[] = {0.707107, 0.353553, 0.176777, 0.0883883};
  for (std::size_t h = 0; h < 4; ++h)
    CHECK(std::fabs(twelve[8 + h] - rest[h]) < 1e-6);
  CHECK(four == std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625});
  CHECK(twelve.size() == 12);
}

TEST_CASE("the cost of standard halves under causality and counts whole tiles as executed") {
  const AttentionSpec& spec = *find_attention("standard");
  AttentionConfig config = small();
  const config::Node options = config::parse("kernel: tiled", "a.yaml");
  const Cost causal = spec.cost(config, options, 128, 128);
  config.causal = false;
  const Cost full = spec.cost(config, options, 128, 128);
  CHECK(full.useful_forward == 2.0 * 2 * 128 * 128 * (8 + 8));
  CHECK(full.useful_backward == 2.5 * full.useful_forward);
  CHECK(full.executed_forward == full.useful_forward);
  CHECK(causal.useful_forward == full.useful_forward / 2 * (129.0 / 128));
  CHECK(causal.executed_forward == full.useful_forward * 0.75);
  CHECK(spec.cost(config, options, 1, 100).useful_forward == 2.0 * 2 * 100 * 16);
}

TEST_CASE("the generated documentation names every method and option") {
  const std::string text = attention_markdown();
  for (const AttentionSpec& spec : attention_specs()) {
    CHECK(text.find("## " + std::string(spec.name)) != std::string::npos);
    for (const config::Option& option : spec.options)
      CHECK(text.find(option.key) != std::string::npos);
  }
}

TEST_CASE(
    "heads that are too wide for a GPU's tiles say what happens there, unless tiles must be") {
  const AttentionSpec& spec = *find_attention("standard");
  AttentionConfig wide = small();
  wide.qk_dim = wide.v_dim = 257;
  const auto refused = [&](const AttentionConfig& config, const char* options) {
    return make_attention(spec, config, config::parse(options, "a.yaml"))->refused();
  };
  CHECK(refused(wide, "").find("on a GPU materialised") == 0);
  CHECK(refused(wide, "kernel: tiled!").empty());
  CHECK(refused(wide, "kernel: materialised").empty());
  wide.qk_dim = wide.v_dim = 256;
  CHECK(refused(wide, "").empty());
}
