// Linformer: baselines.md 8.5, and what its sharing and decoding promise.

#include <cmath>

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "config/yaml.h"
#include "contract_rows.h"
#include "core/error.h"
#include "core/random.h"
#include "trial_method.h"

using namespace fovea;
using namespace fovea::attention;
using contract::distance;
using contract::Outcome;
using contract::Tokens;
using contract::Trial;
using fovea::test::check_rows;
using fovea::test::run64;
using fovea::test::TrialMethod;

namespace {

Trial trial_of(const std::string& options, bool causal, std::int64_t n = 24) {
  Trial trial{.spec = find_attention("linformer"), .options = config::parse(options, "test")};
  trial.causal = causal;
  trial.heads = 4;
  return trial.sized(n);
}

Tensor identity(std::int64_t rows, std::int64_t columns) {
  std::vector<double> values(static_cast<std::size_t>(rows * columns), 0.0);
  for (std::int64_t i = 0; i < std::min(rows, columns); ++i)
    values[static_cast<std::size_t>(i * columns + i)] = 1;
  return Tensor::from(values, {rows, columns}, DType::f64);
}

// Exact attention on the same tokens.
Outcome exact(const Trial& like, const Tokens& tokens) {
  Trial trial = like;
  trial.spec = find_attention("standard");
  trial.options = config::parse("", "test");
  return contract::run(trial, tokens, {.precision = Precision::fp64});
}

double worst(const Outcome& found, const Outcome& expected) {
  double error = 0;
  for (const char* name : {"o", "lse", "grad.q", "grad.k", "grad.v"})
    error = std::max(error, distance(found.at(name), expected.at(name)));
  return error;
}

std::string refusal(const std::string& options, bool causal) {
  AttentionConfig config{.n_embd = 16, .n_head = 2, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 32;
  config.causal = causal;
  try {
    make_attention(*find_attention("linformer"), config, config::parse(options, "a.yaml"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void check_all(const std::string& options, bool causal = true) {
  AttentionSpec spec = *find_attention("linformer");
  spec.caps.causal = causal;
  check_rows(check_contract(spec, config::parse(options, "test")));
}

}  // namespace

TEST_CASE("with as many slots as tokens and the identity as map, Linformer is exact attention") {
  Trial trial = trial_of("rank: 24", false);
  trial.max_len = 24;
  Tokens tokens = contract::draw_tokens(trial);
  tokens.parameters["E"] = identity(24, 24);
  CHECK(worst(run64(trial, tokens), exact(trial, tokens)) < 1e-12);
}

TEST_CASE("block mode is exact causal attention with one block, or with a slot for every token") {
  Trial one = trial_of("{causal_mode: block, block: 24, block_rank: 3}", true);
  const Tokens tokens = contract::draw_tokens(one);
  CHECK(worst(run64(one, tokens), exact(one, tokens)) < 1e-12);
  for (const char* window : {"0", "1", "2"}) {
    CAPTURE(window);
    Trial whole = trial_of(
        std::string("{causal_mode: block, block: 5, block_rank: 5, window_blocks: ") + window + "}",
        true);
    Tokens with_identity = tokens;
    with_identity.parameters["E"] = identity(5, 5);
    CHECK(worst(run64(whole, with_identity), exact(whole, tokens)) < 1e-12);
  }
}

TEST_CASE("slots of blocks without a valid token are not seen, and holes inside a block are 0") {
  const Trial trial = trial_of("{causal_mode: block, block: 4, block_rank: 4}", true);
  Tokens tokens = contract::draw_tokens(trial);
  tokens.parameters["E"] = identity(4, 4);
  std::vector<double> valid(2 * 24, 1.0);
  for (std::size_t j = 4; j < 8; ++j)
    valid[j] = 0;  // a whole block of sample 0
  tokens.key_valid = Tensor::from(valid, {2, 24}, DType::u8);
  CHECK(worst(run64(trial, tokens), exact(trial, tokens)) < 1e-12);
}

TEST_CASE("long sequences, whose queries are cut into groups, have the values of their parts") {
  // 4096 queries are cut in four; odd numbers of them never.
  const Trial whole = trial_of("{rank: 5, max_len: 4096, share: headwise}", false, 4096);
  Tokens tokens = contract::draw_tokens(whole);
  tokens.key_valid = contract::lengths_mask({4096, 3000}, 4096);
  const Outcome found = contract::run(whole, tokens);
  Outcome sums;
  for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{0, 2047}, {2047, 4096}}) {
    Trial trial = whole;
    trial.cross = true;
    trial.queries = to - from;
    Tokens part = tokens;
    for (Tensor Tokens::*rows : {&Tokens::q, &Tokens::dout, &Tokens::dlse})
      part.*rows = contract::clone((tokens.*rows).slice(2, from, to));
    part.query_valid = contract::clone(tokens.key_valid.slice(1, from, to));
    for (auto& [name, value] : contract::run(trial, part)) {
      if (name == "o" || name == "lse" || name == "grad.q") {
        CHECK_MESSAGE(distance(found.at(name).slice(2, from, to), value) < 1e-6, name);
      } else if (Tensor& sum = sums[name]; !sum.defined()) {
        sum = value;
      } else {
        for (std::int64_t i = 0; i < value.numel(); ++i)
          sum.data<double>()[i] += value.data<double>()[i];
      }
    }
  }
  for (const char* name : {"grad.k", "grad.v", "grad.param.E", "grad.param.F"})
    CHECK_MESSAGE(distance(found.at(name), sums.at(name)) < 1e-5, name);
}

TEST_CASE("the last row of prefix mode is that of the bidirectional form") {
  for (const std::string share : {"kv", "headwise", "none"}) {
    CAPTURE(share);
    const std::string options = "{rank: 6, causal_mode: prefix, share: " + share + "}";
    Trial causal = trial_of(options, true, 150);
    const Trial both = trial_of(options, false, 150);
    const Tokens tokens = contract::draw_tokens(causal);
    const auto last = [&](const Trial& trial) {
      return contract::run(trial, tokens, {.backward = false}).at("o").slice(2, 149, 150);
    };
    CHECK(distance(last(causal), last(both)) < 1e-5);
  }
}

TEST_CASE("both causal modes and every sharing keep the contract") {
  check_all("{rank: 16, causal_mode: prefix, share: headwise}");
  check_all("{rank: 9, causal_mode: prefix, share: none, scale: 0.3}");
  check_all(
      "{rank: 16, causal_mode: block, block: 16, block_rank: 4, window_blocks: 1, share: none}");
  check_all("{rank: 5, causal_mode: block, block: 7, block_rank: 3, share: layer}");
}

TEST_CASE("a causal model needs a causal mode, and the reason is given") {
  CHECK(refusal("rank: 4", true).find("the model is causal") != std::string::npos);
  CHECK(refusal("rank: 4", false).empty());
  CHECK(refusal("causal_mode: block", true).empty());
  CHECK(refusal("causal_mode: prefix", true).empty());
  CHECK(refusal("{causal_mode: block, renormalise: true}", true).find("bidirectional") !=
        std::string::npos);
}

TEST_CASE("renormalised slots do not shrink with padding") {
  Trial trial = trial_of("{rank: 3, renormalise: true}", false, 24);
  trial.max_len = 24;
  Tokens tokens = contract::draw_tokens(trial);
  // Constant values and positive weights: every slot holds total weight times the constant.
  for (std::int64_t i = 0; i < tokens.v.numel(); ++i)
    tokens.v.data<double>()[i] = 2;
  Tensor& map = tokens.parameters["E"];
  for (std::int64_t i = 0; i < map.numel(); ++i)
    map.data<double>()[i] = std::fabs(map.data<double>()[i]) + 0.1;
  for (std::int64_t j = 0; j < 24; ++j)
    map.data<double>()[j] = map.data<double>()[24 + j] = map.data<double>()[48 + j];
  double total = 0;
  for (std::int64_t j = 0; j < 24; ++j)
    total += map.data<double>()[j];
  tokens.key_valid = contract::lengths_mask({24, 5}, 24);
  const Tensor o = run64(trial, tokens).at("o");
  CHECK(o.slice(0, 0, 1).values().front() == doctest::Approx(2 * total));
  CHECK(o.slice(0, 1, 2).values().front() == doctest::Approx(2 * total));
  check_all("{rank: 6, causal_mode: forbid, renormalise: true}", false);
}

TEST_CASE("sharing decides which maps exist, and a model may have one for all layers") {
  nn::SharedParameters shared;
  AttentionConfig config{.n_embd = 32, .n_head = 4, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 20;
  config.causal = false;
  config.shared = &shared;
  const auto made = [&](const std::string& share) {
    return make_attention(*find_attention("linformer"), config,
                          config::parse("{rank: 3, share: " + share + "}", "test"));
  };
  const auto shapes = [&](const std::string& share) {
    std::string out;
    const auto method = made(share);
    for (const nn::Parameter* p : method->parameters())
      out += p->path + p->shape.str();
    return out;
  };
  CHECK(shapes("none") == "E[2,3,20]F[2,3,20]");
  CHECK(shapes("headwise") == "E[3,20]F[3,20]");
  CHECK(shapes("kv") == "E[3,20]");
  const auto first = made("layer"), second = made("layer");
  CHECK(first->parameters() == second->parameters());
  const auto one = made("kv"), other = made("kv");
  CHECK(one->parameters() != other->parameters());
}

TEST_CASE("layers that share one E must agree on its size") {
  nn::SharedParameters shared;
  AttentionConfig config{.n_embd = 32, .n_head = 4, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 20;
  config.layer = 3;
  config.shared = &shared;
  const auto made = [&](const std::string& options) {
    return make_attention(*find_attention("linformer"), config,
                          config::parse("{share: layer, " + options + "}", "a.yaml"));
  };
  const auto first = made("causal_mode: prefix, rank: 4");
  config.layer = 5;
  CHECK(made("causal_mode: prefix, rank: 4") != nullptr);
  CHECK_THROWS_WITH_AS(made("causal_mode: prefix, rank: 8"),
                       "a.yaml:1:43: model.attention.rank is 8, but must be 4 as in layer 3: with "
                       "share: layer all layers have one E",
                       ConfigError);
  CHECK_THROWS_WITH_AS(made("causal_mode: prefix, rank: 4, max_len: 30"),
                       "a.yaml:1:55: model.attention.max_len is 30, but must be 20 as in layer 3: "
                       "with share: layer all layers have one E",
                       ConfigError);
  CHECK(made("causal_mode: block, block_rank: 2") != nullptr);  // another E
}

TEST_CASE("maps with fewer columns than the model's block_size are refused") {
  AttentionConfig config{.n_embd = 32, .n_head = 4, .n_kv_head = 4, .qk_dim = 8, .v_dim = 8};
  config.max_len = 64;
  CHECK_THROWS_WITH_AS(make_attention(*find_attention("linformer"), config,
                                      config::parse("{causal_mode: block, max_len: 63}", "a.yaml")),
                       "a.yaml:1:31: model.attention.max_len is 63, but must be at least "
                       "model.block_size (64)",
                       ConfigError);
}

TEST_CASE("more tokens than the maps have columns are refused") {
  for (const bool causal : {false, true}) {
    Trial trial = trial_of("{rank: 3, causal_mode: prefix}", causal, 21);
    trial.max_len = 20;
    CHECK_THROWS_WITH_AS(run64(trial, contract::draw_tokens(trial)),
                         "linformer: 21 tokens, but its maps have columns for max_len = 20",
                         ShapeError);
  }
}

TEST_CASE("samples with prompts of different lengths decode as if alone") {
  for (const std::string options :
       {"{causal_mode: block, block: 3, block_rank: 2, window_blocks: 1}",
        "{causal_mode: prefix, rank: 5}"}) {
    CAPTURE(options);
    const Trial trial = trial_of(options, true, 14);
    const Tokens tokens = contract::draw_tokens(trial);
    TrialMethod alone(trial, Precision::fp32);
    Ctx& ctx = alone.ctx;
    const auto cut = [&](std::int64_t b, std::int64_t e, std::int64_t from, std::int64_t to) {
      const auto part = [&](const Tensor& x) {
        const Tensor rows = x.slice(0, b, e).slice(2, from, to);
        Tensor out = Tensor::empty(rows.shape(), DType::f32, kCpu);
        copy_host(out.view(), rows.view());
        return Var(out);
      };
      AttentionInput in;
      in.q = part(tokens.q);
      in.k = part(tokens.k);
      in.v = part(tokens.v);
      return in;
    };
    const auto both = alone.method().start(ctx, 2, 14), single = alone.method().start(ctx, 1, 14);
    AttentionInput prompt = cut(0, 2, 0, 10);
    prompt.key_valid = contract::lengths_mask({10, 7}, 10);
    const Tensor first = alone.method().step(ctx, *both, prompt).o.value();
    for (const double value : first.slice(0, 1, 2).slice(2, 7, 10).values())
      CHECK(value == 0);
    const Tensor second = alone.method().step(ctx, *both, cut(0, 2, 10, 12)).o.value();
    const Tensor own = alone.method().step(ctx, *single, cut(1, 2, 0, 7)).o.value();
    CHECK(first.slice(0, 1, 2).slice(2, 0, 7).values() == own.values());
    CHECK(second.slice(0, 1, 2).values() ==
          alone.method().step(ctx, *single, cut(1, 2, 10, 12)).o.value().values());
    CHECK(both->length() == 12);

    // A beam that takes sample 1 twice goes on like sample 1.
    const std::int64_t beams[] = {1, 1};
    both->reorder(ctx, beams);
    AttentionInput next = cut(1, 2, 12, 13);
    const Tensor expected = alone.method().step(ctx, *single, next).o.value();
    AttentionInput twice = cut(0, 2, 12, 13);
    for (Var AttentionInput::*part : {&AttentionInput::q, &AttentionInput::k, &AttentionInput::v})
      copy_host((twice.*part).value().slice(0, 0, 1).view(), (next.*part).view());
    const Tensor found = alone.method().step(ctx, *both, twice).o.value();
    CHECK(found.slice(0, 0, 1).values() == expected.values());
    CHECK_THROWS_AS(alone.method().step(ctx, *both, cut(0, 2, 9, 14)), ShapeError);
  }
}

TEST_CASE("a state holds slots and one window, or two sums, not the past") {
  AttentionConfig config{.n_embd = 32, .n_head = 4, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 4096;
  Stream stream(kCpu);
  CachingAllocator memory(memory_source(kCpu));
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  const auto bytes = [&](const std::string& options) {
    const auto method =
        make_attention(*find_attention("linformer"), config, config::parse(options, "test"));
    return method->start(ctx, 1, 4096)->bytes_per_token();
  };
  // Of 2 heads (8 + 8) 4 = 128 bytes of raw keys and values a token: an eighth, and a window of 64.
  CHECK(bytes("{causal_mode: block, block: 64, block_rank: 8}") == 128 / 8 + 2);
  CHECK(bytes("{causal_mode: prefix, rank: 32}") == 1);
}
