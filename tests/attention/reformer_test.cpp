// Reformer: baselines.md 15 told pair by pair, and the tests of 15.6.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "config/option.h"
#include "config/yaml.h"
#include "contract_rows.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
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

Trial trial_of(const std::string& options, bool causal, std::int64_t n) {
  Trial trial{.spec = find_attention("reformer"), .options = config::parse(options, "test")};
  trial.causal = causal;
  return trial.sized(n);
}

// One head of one sample, by the words of the specification.
struct Reference {
  std::int64_t n, width, bucket_size, rounds;
  bool causal, correct, across, wrap, windowed;
  std::vector<double> q;   // [n, width] of the valid tokens
  std::vector<double> at;  // their positions
  std::vector<std::vector<std::int64_t>> bucket, slot;

  void hash(std::int64_t columns) {
    const std::int64_t used =
        std::min(columns, std::max<std::int64_t>(1, (n + 2 * bucket_size - 1) / (2 * bucket_size)));
    for (std::int64_t r = 0; r < rounds; ++r) {
      const NamedStream stream(1, cat("method.rotations.", r));
      std::vector<std::int64_t> own, order(static_cast<std::size_t>(n)), place = order;
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> x(static_cast<std::size_t>(2 * used));
        for (std::int64_t c = 0; c < used; ++c) {
          double sum = 0;
          for (std::int64_t d = 0; d < width; ++d) {
            sum += q[static_cast<std::size_t>(i * width + d)] *
                   double(float(stream.normal(static_cast<std::uint64_t>(c * width + d))));
          }
          x[static_cast<std::size_t>(c)] = sum;
          x[static_cast<std::size_t>(used + c)] = -sum;
        }
        own.push_back(std::max_element(x.begin(), x.end()) - x.begin());
      }
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return own[static_cast<std::size_t>(a)] < own[static_cast<std::size_t>(b)];
      });
      for (std::int64_t s = 0; s < n; ++s)
        place[static_cast<std::size_t>(order[static_cast<std::size_t>(s)])] = s;
      bucket.push_back(own);
      slot.push_back(place);
    }
  }
  std::int64_t of(const std::vector<std::vector<std::int64_t>>& x, std::int64_t r,
                  std::int64_t i) const {
    return x[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)];
  }
  // How often round r shows j to i.
  int shown(std::int64_t r, std::int64_t i, std::int64_t j) const {
    if (causal && at[static_cast<std::size_t>(j)] > at[static_cast<std::size_t>(i)]) return 0;
    const std::int64_t a = of(slot, r, i), b = of(slot, r, j);
    const bool alike = of(bucket, r, i) == of(bucket, r, j);
    if (windowed) return i == j || (alike && b < a && a - b <= bucket_size) ? 1 : 0;
    int out = 0;
    const std::int64_t apart = a / bucket_size - b / bucket_size;
    if ((apart == 0 || apart == 1) && (across || alike)) out += 1;
    const std::int64_t last = (n - 1) / bucket_size, before = (r + rounds - 1) % rounds;
    const bool elsewhere = rounds > 1 || last > 0;
    if (wrap && elsewhere && i != j && a / bucket_size == 0 &&
        of(slot, before, j) / bucket_size == last && (across || (alike && rounds == 1)))
      out += 1;
    return out;
  }
  // The output row of token i, its log-sum-exp last.
  std::vector<double> row(std::int64_t i, const std::vector<double>& v,
                          std::int64_t v_width) const {
    std::vector<double> out(static_cast<std::size_t>(v_width), 0.0), scores;
    std::vector<std::int64_t> keys;
    const auto at_row = [&](std::int64_t t) { return q.begin() + t * width; };
    for (std::int64_t j = 0; j < n; ++j) {
      int count = 0;
      for (std::int64_t r = 0; r < rounds; ++r)
        count += shown(r, i, j);
      if (count == 0) continue;
      const double length =
          std::sqrt(std::inner_product(at_row(j), at_row(j) + width, at_row(j), 0.0));
      const double score = i == j
                               ? -5e4
                               : std::inner_product(at_row(i), at_row(i) + width, at_row(j), 0.0) /
                                     length / std::sqrt(double(width));
      // Seen `count` times, or as often with a count-th of the weight each.
      scores.push_back(correct ? score : score + std::log(double(count)));
      keys.push_back(j);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (std::size_t e = 0; e < keys.size(); ++e)
      sum += std::exp(scores[e] - most);
    for (std::size_t e = 0; e < keys.size(); ++e) {
      for (std::int64_t c = 0; c < v_width; ++c) {
        out[static_cast<std::size_t>(c)] +=
            std::exp(scores[e] - most) / sum * v[static_cast<std::size_t>(keys[e] * v_width + c)];
      }
    }
    out.push_back(most + std::log(sum));
    return out;
  }
};

// The largest difference of o and lse from the reference, over valid tokens.
double error_of(const Trial& trial, const Tokens& tokens) {
  const Outcome found = run64(trial, tokens);
  const config::Node options =
      config::complete(trial.options, trial.spec->options, "model.attention");
  const auto flag = [&](const char* key, const char* value) {
    return options.get_string(key) == value;
  };
  double error = 0;
  for (std::int64_t b = 0; b < trial.batch; ++b) {
    std::vector<std::int64_t> real;
    for (std::int64_t i = 0; i < trial.queries; ++i) {
      if (!tokens.key_valid.defined() ||
          tokens.key_valid.slice(0, b, b + 1).slice(1, i, i + 1).values()[0] != 0)
        real.push_back(i);
    }
    for (std::int64_t h = 0; h < trial.heads; ++h) {
      const auto rows = [&](const Tensor& x) {
        std::vector<double> out;
        for (const std::int64_t i : real) {
          const auto row = x.slice(0, b, b + 1).slice(1, h, h + 1).slice(2, i, i + 1).values();
          out.insert(out.end(), row.begin(), row.end());
        }
        return out;
      };
      Reference reference{static_cast<std::int64_t>(real.size()),
                          trial.qk_dim,
                          options.get_int("bucket_size"),
                          options.get_int("rounds"),
                          trial.causal,
                          flag("duplicates", "correct"),
                          options.get_bool("attend_across_buckets"),
                          options.get_bool("wrap"),
                          flag("chunking", "per_position_window"),
                          rows(tokens.q),
                          {real.begin(), real.end()},
                          {},
                          {}};
      reference.hash((trial.config().max_len + 2 * reference.bucket_size - 1) /
                     (2 * reference.bucket_size));
      const std::vector<double> v = rows(tokens.v), o = rows(found.at("o")),
                                lse = rows(found.at("lse"));
      for (std::int64_t i = 0; i < reference.n; ++i) {
        const std::vector<double> expected = reference.row(i, v, trial.v_dim);
        for (std::int64_t c = 0; c < trial.v_dim; ++c) {
          error = std::max(error, std::fabs(o[static_cast<std::size_t>(i * trial.v_dim + c)] -
                                            expected[static_cast<std::size_t>(c)]));
        }
        error = std::max(error, std::fabs(lse[static_cast<std::size_t>(i)] - expected.back()));
      }
    }
  }
  return error;
}

const char* const kChoices[] = {
    "{bucket_size: 5, rounds: 3}",
    "{bucket_size: 4, rounds: 1}",
    "{bucket_size: 70, rounds: 2}",
    "{bucket_size: 5, rounds: 3, duplicates: correct}",
    "{bucket_size: 6, rounds: 2, attend_across_buckets: false}",
    "{bucket_size: 6, rounds: 3, attend_across_buckets: false, duplicates: correct}",
    "{bucket_size: 7, rounds: 1, wrap: true}",
    "{bucket_size: 7, rounds: 3, wrap: true}",
    "{bucket_size: 3, rounds: 2, chunking: per_position_window}",
    "{bucket_size: 80, rounds: 3, chunking: per_position_window, duplicates: correct}",
};

// o of a method whose rounds all have the rotations of the first.
Tensor with_equal_rotations(const Trial& trial, const Tokens& tokens) {
  TrialMethod alone(trial);
  Ctx& ctx = alone.ctx;
  alone.method().before_step(ctx, nn::Clock{});
  const Tensor& rotations = alone.method().buffers().at(0)->value;
  for (std::int64_t r = 1; r < rotations.size(0); ++r)
    copy_host(rotations.slice(0, r, r + 1).view(), rotations.slice(0, 0, 1).view());
  AttentionInput in;
  in.q = Var(tokens.q);
  in.v = Var(tokens.v);
  return contract::clone(alone.method().forward(ctx, in).o.value());
}

void check_all(const std::string& options, bool strict) {
  AttentionSpec spec = *find_attention("reformer");
  spec.caps.strict = strict;
  check_rows(check_contract(spec, config::parse(options, "test")));
}

}  // namespace

TEST_CASE("outputs and sums are those of the pairs that the specification names") {
  for (const bool causal : {false, true}) {
    for (const char* options : kChoices) {
      for (const std::int64_t n : {1, 23, 150}) {
        CAPTURE(causal);
        CAPTURE(options);
        CAPTURE(n);
        const Trial trial = trial_of(options, causal, n);
        Tokens tokens = contract::draw_tokens(trial);
        CHECK(error_of(trial, tokens) < 1e-10);
        if (n == 1) continue;
        tokens.key_valid = contract::lengths_mask({n, n - 9}, n);
        CHECK(error_of(trial, tokens) < 1e-10);
        std::vector<double> holes(static_cast<std::size_t>(2 * n));
        for (std::size_t i = 0; i < holes.size(); ++i)
          holes[i] = i % 3 == 1 ? 0 : 1;
        tokens.key_valid = Tensor::from(holes, {2, n}, DType::u8);
        CHECK(error_of(trial, tokens) < 1e-10);
      }
    }
  }
}

TEST_CASE("choices away from the defaults keep the contract") {
  for (const std::size_t choice : {2, 5, 7, 9}) {
    CAPTURE(kChoices[choice]);
    check_all(kChoices[choice], false);
  }
}

TEST_CASE("windows of single positions are causal to the bit, chunks are not") {
  check_all("{bucket_size: 8, rounds: 2, chunking: per_position_window}", true);
  const Trial trial = trial_of("{bucket_size: 8, rounds: 2}", true, 60);
  const Tokens tokens = contract::draw_tokens(trial),
               other = contract::draw_tokens(trial, "future", 3);
  const auto early = [&](const Tokens& t) {
    return contract::run(trial, t, {.backward = false}).at("o").slice(2, 0, 40);
  };
  CHECK(contract::differing(early(tokens), early(contract::replaced(tokens, 40, other))) > 0);
}

TEST_CASE("in a single chunk, permuted tokens give permuted outputs") {
  const Trial trial = trial_of("{bucket_size: 40, rounds: 1}", false, 31);
  const Tokens tokens = contract::draw_tokens(trial);
  Tokens turned = tokens;
  turned.q = contract::clone(tokens.q);
  turned.v = contract::clone(tokens.v);
  const Tensor o = run64(trial, tokens).at("o");
  Tensor expected = contract::clone(o);
  for (std::int64_t j = 0; j < 31; ++j) {
    const std::int64_t from = (7 * j + 3) % 31;
    for (const auto& [to, of] : {std::pair(&turned.q, &tokens.q), std::pair(&turned.v, &tokens.v),
                                 std::pair(&expected, &o)})
      copy_host(to->slice(2, j, j + 1).view(), of->slice(2, from, from + 1).view());
  }
  CHECK(distance(run64(trial, turned).at("o"), expected) < 1e-12);
}

TEST_CASE("corrected duplicates of equal rotations are one round") {
  const Trial one = trial_of("{bucket_size: 6, rounds: 1}", false, 50),
              four = trial_of("{bucket_size: 6, rounds: 4, duplicates: correct}", false, 50);
  const Tokens tokens = contract::draw_tokens(one);
  CHECK(distance(with_equal_rotations(four, tokens), with_equal_rotations(one, tokens)) < 1e-12);
}

TEST_CASE("a token that sees nothing else returns its value, and sends its query no gradient") {
  const Trial trial = trial_of("{bucket_size: 4, rounds: 3}", true, 20);
  const Outcome found = run64(trial, contract::draw_tokens(trial));
  const Tokens tokens = contract::draw_tokens(trial);
  CHECK(distance(found.at("o").slice(2, 0, 1), tokens.v.slice(2, 0, 1)) == 0);
  for (const double lse : found.at("lse").slice(2, 0, 1).values())
    CHECK(lse == doctest::Approx(-5e4 + std::log(3)));
}

TEST_CASE("fewer key/value heads, wrapping windows and too many wrapping rounds are refused") {
  AttentionConfig config{.n_embd = 16, .n_head = 2, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 100;
  const auto refusal = [&](const std::string& options) -> std::string {
    try {
      make_attention(*find_attention("reformer"), config, config::parse(options, "a.yaml"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("{}").empty());
  CHECK(refusal("{wrap: true, chunking: per_position_window}").find("no first chunk") !=
        std::string::npos);
  CHECK(refusal("{wrap: true, rounds: 9}").find("at most 8") != std::string::npos);
  config.n_kv_head = 1;
  CHECK(refusal("{}").find("one projection") != std::string::npos);
}

TEST_CASE("it asks for queries and values alone, and for unrotated queries to hash by content") {
  const AttentionSpec& spec = *find_attention("reformer");
  AttentionConfig config{.n_embd = 16, .n_head = 2, .n_kv_head = 2, .qk_dim = 8, .v_dim = 4};
  const auto names = [&](const std::string& text) {
    std::string out;
    for (const ProjectionSpec& p :
         spec.projections(config, config::complete(config::parse(text, "test"), spec.options, "")))
      out += cat(p.name, p.width, " ");
    return out;
  };
  CHECK(names("{}") == "q8 v4 ");
  CHECK(names("hash_input: pre_rope") == "q8 v4 q_unrotated8 ");
  // Content alone: positions in q change scores, not buckets.
  const Trial trial = trial_of("{bucket_size: 4, rounds: 1, hash_input: pre_rope}", false, 16);
  const Tokens tokens = contract::draw_tokens(trial);
  TrialMethod alone(trial);
  Ctx& ctx = alone.ctx;
  AttentionInput in;
  in.q = Var(tokens.q);
  in.v = Var(tokens.v);
  in.q_unrotated = Var(tokens.k);
  const Tensor by_content = contract::clone(alone.method().forward(ctx, in).o.value());
  in.q_unrotated = Var();
  CHECK(distance(alone.method().forward(ctx, in).o.value(), by_content) > 1e-3);
}
