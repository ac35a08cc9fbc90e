// Reformer: keys are the queries' directions, and a token attends to those that hash alike.
// baselines.md 15.

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/exact/exact_operator.h"
#include "attention/option_error.h"
#include "attention/registry.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/low_rank.h"
#include "autograd/ops/lsh.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/round_attention.h"
#include "core/random.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/merge.h"

namespace fovea::attention {

namespace {

constexpr double kOwnScore = -5e4;  // of a token with itself, which it sees if it sees nothing else
constexpr double kNormEps = 1e-12;  // of the mean square of a query

constexpr config::Option kOptions[] = {
    {"bucket_size", config::Type::integer, "64", "[1, inf)",
     "Tokens of a chunk, and of a bucket in the mean; a token sees its own chunk and the one "
     "before."},
    {"rounds", config::Type::integer, "4", "[1, 16]",
     "Hashings with rotations of their own, combined by their log-sum-exp."},
    {"duplicates", config::Type::choice, "allow", "allow | correct",
     "Whether a pair that several rounds show counts as often, or once."},
    {"attend_across_buckets", config::Type::boolean, "true", "",
     "Also see the tokens of other buckets in the two chunks."},
    {"wrap", config::Type::boolean, "false", "",
     "The first chunk of a round sees the last one of the round before, as in the published code."},
    {"chunking", config::Type::choice, "sorted", "sorted | per_position_window",
     "What a token sees: chunks of the sorted tokens, or the bucket_size latest earlier tokens of "
     "its bucket, which alone is causal to the bit."},
    {"hash_input", config::Type::choice, "post_rope", "post_rope | pre_rope",
     "Hash queries as rotated by position, or by their content alone."},
    kScaleOption,
};

constexpr Capabilities kCapabilities{
    .causal = true,
    .bidirectional = true,
    .cross = false,
    .padding = true,
    .segments = false,
    .bias = false,
    .dropout = true,
    .static_shapes = false,
    .gqa = false,
    .any_width = false,
    .strict = false,
    .note =
        "queries and keys are one projection of one sequence. Causal in values but not in "
        "support: a later token can move a boundary between chunks, and so change which "
        "earlier ones are seen (not so with chunking: per_position_window)",
};

std::int64_t columns_for(std::int64_t tokens, std::int64_t bucket_size) {
  return std::max<std::int64_t>(1, (tokens + 2 * bucket_size - 1) / (2 * bucket_size));
}

struct Choice {
  std::int64_t bucket_size, rounds;
  bool once, across, wrap, windowed;
  explicit Choice(const config::Node& options)
      : bucket_size(options.get_int("bucket_size")),
        rounds(options.get_int("rounds")),
        once(options.get_string("duplicates") == "correct"),
        across(options.get_bool("attend_across_buckets")),
        wrap(options.get_bool("wrap")),
        windowed(options.get_string("chunking") == "per_position_window") {}
  // Chunks alone, which a rule of a few numbers tells.
  bool is_plain() const { return !once && across && !wrap && !windowed; }
  // Pairs of a round, the estimate of the specification.
  double pairs(double tokens, bool causal) const {
    const double each = std::min(tokens, static_cast<double>((windowed ? 1 : 2) * bucket_size));
    return tokens * each / (causal && !windowed ? 2 : 1);
  }
};

class Reformer final : public Attention {
 public:
  Reformer(const AttentionConfig& config, const config::Node& options)
      : config_(config),
        choice_(options),
        hash_unrotated_(options.get_string("hash_input") == "pre_rope"),
        // Keys come out of the norm with length sqrt(width).
        scale_(score_scale(config, options) / std::sqrt(static_cast<double>(config.qk_dim))) {
    const Shape shape{choice_.rounds, config.qk_dim,
                      columns_for(config.max_len, choice_.bucket_size)};
    const std::vector<double> none(static_cast<std::size_t>(shape.numel()), 0.0);
    rotations_ = &buffer("rotations", Tensor::from(none, shape, DType::f32), /*on_host=*/true);
  }

  void before_step(Ctx& ctx, const nn::Clock& /*clock*/) override { draw(ctx); }
  AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override;
  std::string kernel() const override { return "tiled"; }

 private:
  // A call's tokens, or those of every head as a sample.
  struct Tokens {
    Var q, k, v;
    Tensor valid;
  };
  void draw(const Ctx& ctx);
  const Tensor& rotations(Ctx& ctx);
  Var unit_keys(Ctx& ctx, const Var& q);
  AttentionMask mask_for(Ctx& ctx, const Tensor& valid, std::string_view part) const;
  AttentionResult by_chunks(Ctx& ctx, const Tokens& t, const LshTables& tables, double alone) const;
  AttentionResult by_words(Ctx& ctx, const Tokens& t, const LshTables& tables,
                           const LshPart& part) const;

  AttentionConfig config_;
  Choice choice_;
  bool hash_unrotated_;
  double scale_;
  Tensor* rotations_;      // the buffer, f32 [rounds, width, columns]; 0: not drawn yet
  Tensor placed_, drawn_;  // where they work, and which those are
  Tensor ones_;
};

// Element (d, c) of a round does not depend on how many columns there are, so that a shorter
// max_len has the first of them.
void Reformer::draw(const Ctx& ctx) {
  const Tensor& to = *rotations_;
  if (to.device().is_meta() || *to.data<float>() != 0) return;
  const std::int64_t width = to.size(1), columns = to.size(2);
  for (std::int64_t r = 0; r < to.size(0); ++r) {
    const NamedStream stream(ctx.seed, cat(path(), ".rotations.", r));
    for (std::int64_t d = 0; d < width; ++d) {
      for (std::int64_t c = 0; c < columns; ++c) {
        to.data<float>()[(r * width + d) * columns + c] =
            static_cast<float>(stream.normal(static_cast<std::uint64_t>(c * width + d)));
      }
    }
  }
}

// The buffer on the context's device: moved again if a checkpoint changed it.
const Tensor& Reformer::rotations(Ctx& ctx) {
  draw(ctx);
  if (ctx.device.is_cpu()) return *rotations_;
  const bool same =
      placed_.defined() && placed_.device() == ctx.device &&
      std::equal(rotations_->data<float>(), rotations_->data<float>() + rotations_->numel(),
                 drawn_.data<float>());
  if (same) return placed_;
  drawn_ = Tensor::empty(rotations_->shape(), DType::f32, kCpu);
  copy_host(drawn_.view(), rotations_->view());
  placed_ = ctx.device.is_meta() ? Tensor::empty(drawn_.shape(), DType::f32, kMeta)
                                 : drawn_.to(ctx.device, ctx.stream);
  return placed_;
}

// q / |q| sqrt(width).
Var Reformer::unit_keys(Ctx& ctx, const Var& q) {
  if (!ones_.defined() || ones_.dtype() != q.dtype() || !(ones_.device() == ctx.device)) {
    ones_ = Tensor::empty({q.value().size(3)}, q.dtype(), ctx.device);
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), ones_.view(), 1.0));
  }
  return rms_norm(ctx, q, Var(ones_), kNormEps);
}

AttentionMask Reformer::mask_for(Ctx& ctx, const Tensor& valid, std::string_view part) const {
  AttentionMask mask;
  mask.causal = config_.causal;
  mask.scale = scale_;
  mask.key_valid = valid;
  mask.dropout = config_.dropout;
  mask.dropout_key = ctx.key(cat(path(), ".dropout.", part));
  return mask;
}

AttentionResult Reformer::by_chunks(Ctx& ctx, const Tokens& t, const LshTables& tables,
                                    double alone) const {
  PlanRule rule;
  rule.rule.in_slots = true;
  rule.rule.hides_own = true;
  rule.rule.block = static_cast<std::int32_t>(std::min(choice_.bucket_size, t.q.size(2)));
  rule.rule.block_left = 1;
  const std::int64_t batch = t.q.size(0), heads = t.q.size(1), tokens = t.q.size(2),
                     samples = choice_.rounds * batch;
  const Tensor orders = tables.order.reshape({samples, heads, tokens});
  const auto plan = std::make_shared<AttentionPlan>(
      PlanShape{samples, heads, heads, tokens, tokens, config_.causal}, std::vector{rule},
      ctx.device, ctx.stream, orders, orders);
  plan->set_pairs(choice_.pairs(static_cast<double>(tokens), config_.causal));
  plan->build(ctx);
  AttentionRounds rounds{
      .count = choice_.rounds, .plan = plan, .dropout_keys = {}, .alone_lse = alone};
  for (std::int64_t r = 0; r < choice_.rounds; ++r)
    rounds.dropout_keys.push_back(ctx.key(cat(path(), ".dropout.", r)));
  return round_attention(ctx, t.q, t.k, t.v, mask_for(ctx, t.valid, "0"), rounds);
}

AttentionResult Reformer::by_words(Ctx& ctx, const Tokens& t, const LshTables& tables,
                                   const LshPart& part) const {
  const std::int64_t rows = t.q.size(0), tokens = t.q.size(2);
  const auto order_of = [&](std::int64_t round) {
    return tables.round_order(round).reshape({rows, 1, tokens});
  };
  const std::int64_t before = (part.round + tables.rounds() - 1) % tables.rounds();
  const Tensor queries = part.windowed ? Tensor{} : order_of(part.round),
               keys = part.wraps ? order_of(before) : queries;
  const auto plan = std::make_shared<AttentionPlan>(
      PlanShape{rows, 1, 1, tokens, tokens, config_.causal}, std::vector{tables.rule(ctx, part)},
      ctx.device, ctx.stream, queries, keys);
  plan->set_pairs(part.wraps ? 0 : choice_.pairs(static_cast<double>(tokens), config_.causal));
  plan->build(ctx);
  AttentionMask mask = mask_for(ctx, t.valid, cat(part.round, part.wraps ? ".wrap" : ""));
  mask.plan = plan;
  return flash_attention(ctx, t.q, t.k, t.v, Var(), mask);
}

// [B,H,N,D] as [B H, 1, N, D].
Var heads_as_samples(Ctx& ctx, const Var& x) {
  const Var rows = x.value().is_contiguous() ? x : permute(ctx, x, {0, 1, 2, 3});
  return reshape(ctx, rows, {x.size(0) * x.size(1), 1, x.size(2), x.size(3)});
}

Tensor valid_of_heads(Ctx& ctx, const Tensor& valid, std::int64_t heads) {
  if (!valid.defined()) return {};
  const std::int64_t batch = valid.size(0), tokens = valid.size(1);
  Tensor out = ctx.empty({batch, heads, tokens}, DType::u8, "reformer");
  for (std::int64_t h = 0; h < heads; ++h) {
    const Tensor to = out.slice(1, h, h + 1).merge_axes(1);
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), valid.view()));
  }
  return out.reshape({batch * heads, tokens});
}

AttentionOutput Reformer::forward(Ctx& ctx, const AttentionInput& in) {
  const Var& hashed = hash_unrotated_ && in.q_unrotated.defined() ? in.q_unrotated : in.q;
  const LshTables tables =
      hash_tokens(ctx, hashed.value(), rotations(ctx), in.key_valid, choice_.bucket_size);
  const std::int64_t batch = in.q.size(0), heads = in.q.size(1), tokens = in.q.size(2);
  Tokens t{in.q, unit_keys(ctx, in.q), in.v, in.key_valid};
  // In every round a lone token sees itself.
  const double alone =
      kOwnScore + (choice_.once ? 0 : std::log(static_cast<double>(choice_.rounds)));
  if (choice_.is_plain()) {
    const AttentionResult r = by_chunks(ctx, t, tables, alone);
    return {.o = r.o, .lse = r.lse};
  }
  t = {heads_as_samples(ctx, t.q), heads_as_samples(ctx, t.k), heads_as_samples(ctx, t.v),
       valid_of_heads(ctx, in.key_valid, heads)};
  std::vector<AttentionResult> parts;
  for (std::int64_t r = 0; r < choice_.rounds; ++r) {
    LshPart part{.round = r,
                 .bucket_size = std::min(choice_.bucket_size, tokens),
                 .windowed = choice_.windowed,
                 .own_bucket = !choice_.across,
                 .once = choice_.once,
                 .any_wraps = choice_.wrap};
    parts.push_back(by_words(ctx, t, tables, part));
    if (!choice_.wrap) continue;
    part.wraps = true;
    parts.push_back(by_words(ctx, t, tables, part));
  }
  const AttentionResult r = merge_attention(ctx, parts, t.v, t.valid, alone);
  return {.o = reshape(ctx, r.o, {batch, heads, tokens, config_.v_dim}),
          .lse = reshape(ctx, r.lse, {batch, heads, tokens})};
}

std::unique_ptr<Attention> make(const AttentionConfig& config, const config::Node& options) {
  const Choice choice(options);
  if (choice.wrap && choice.windowed)
    refuse_option(options, "wrap", "windows of single positions have no first chunk");
  if (choice.wrap && 2 * choice.rounds > kMostMerged)
    refuse_option(options, "rounds", cat("wrapping rounds are at most ", kMostMerged / 2));
  return std::make_unique<Reformer>(config, options);
}

std::vector<ProjectionSpec> projections(const AttentionConfig& config,
                                        const config::Node& options) {
  std::vector<ProjectionSpec> out = {
      {.name = "q", .heads = config.n_head, .width = config.qk_dim, .rope = true, .qk_norm = true},
      {.name = "v", .heads = config.n_kv_head, .width = config.v_dim}};
  if (options.get_string("hash_input") == "pre_rope")
    out.push_back({.name = "q_unrotated", .heads = config.n_head, .width = config.qk_dim});
  return out;
}

Cost cost(const AttentionConfig& config, const config::Node& options, std::int64_t queries,
          std::int64_t /*keys*/) {
  const Choice choice(options);
  const double h = config.n_head, d = config.qk_dim, dv = config.v_dim;
  const auto n = static_cast<double>(queries), rounds = static_cast<double>(choice.rounds);
  const auto columns = static_cast<double>(
      columns_for(std::min<std::int64_t>(queries, config.max_len), choice.bucket_size));
  const double pairs = rounds * choice.pairs(n, config.causal);
  const double tiled = rounds * n * std::min(n, 2.0 * static_cast<double>(choice.bucket_size) + 63);
  const double hashed = 2 * h * rounds * n * d * columns;
  Cost out;
  out.useful_forward = 2 * h * pairs * (d + dv) + hashed;
  out.useful_backward = 2 * h * pairs * (3 * d + 2 * dv);
  out.executed_forward = 2 * h * std::max(pairs, tiled) * (d + dv) + hashed;
  out.executed_backward = 2 * h * std::max(pairs, tiled) * (3 * d + 2 * dv);
  const double tokens = h * n * (2 * d + dv);
  out.bytes_forward = 2 * (tokens + rounds * h * n * dv) + 16 * rounds * h * n;
  out.bytes_backward = 4 * tokens + 4 * rounds * h * n * dv + 8 * rounds * h * n;
  return out;
}

}  // namespace

AttentionSpec reformer_attention() {
  return {.name = "reformer",
          .summary = "Softmax attention among tokens that hash alike, queries being keys as well.",
          .source = "Kitaev et al. 2020, arXiv:2001.04451, section 2 and appendix A",
          .options = kOptions,
          .caps = kCapabilities,
          .projections = projections,
          .make = make,
          .cost = cost,
          .example = "{bucket_size: 16, rounds: 2}"};
}

}  // namespace fovea::attention
