// Cases of flash_attention under plans. Their composition is the materialised op under the same
// pattern told pair by pair, as a bias of 0 and -inf.

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/op_registry.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/elementwise.h"

namespace fovea {

namespace {

using Inputs = std::span<const Var>;
// Whether the pattern shows key j to query i.
using Shows = bool (*)(std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t j);

struct Pattern {
  std::int64_t batch = 1, heads = 2, kv_heads = 2, tokens = 70, width = 16, value_width = 8;
  std::vector<PlanRule> (*rules)() = nullptr;
  Shows shows = nullptr;
  AttentionMask mask = {};
  // Slot s of the queries is token s query_step mod N, and so for keys; 0: no orders.
  std::int64_t query_step = 0, key_step = 0;
  bool counts_tokens = false, segments = false, bias = false;
};

Tensor placed(Ctx& ctx, const Tensor& host) {
  return ctx.device.is_cpu() ? host : host.to(ctx.device, ctx.stream);
}

Tensor order(Ctx& ctx, const Pattern& p, std::int64_t step) {
  std::vector<double> tokens;
  for (std::int64_t s = 0; s < p.tokens && step > 0; ++s)
    tokens.push_back(static_cast<double>(s * step % p.tokens));
  if (step == 0) return {};
  return placed(ctx, Tensor::from(tokens, {1, 1, p.tokens}, DType::i32));
}

AttentionMask mask_of(const Pattern& p, Ctx& ctx, Inputs in) {
  AttentionMask mask = p.mask;
  if (p.segments) mask.query_segments = in[3].value();
  mask.dropout_key = ctx.key("case");
  return mask;
}

std::vector<Var> outputs(const AttentionResult& r) {
  return {r.o};  // an lse of -inf cannot be compared by differences
}

std::vector<Var> by_plan(const Pattern& p, Ctx& ctx, Inputs in) {
  AttentionMask mask = mask_of(p, ctx, in);
  const auto plan = std::make_shared<AttentionPlan>(
      PlanShape{p.batch, p.heads, p.kv_heads, p.tokens, p.tokens, mask.causal}, p.rules(),
      ctx.device, ctx.stream, order(ctx, p, p.query_step), order(ctx, p, p.key_step),
      p.counts_tokens);
  if (!ctx.device.is_meta()) plan->build(ctx, mask);
  mask.plan = plan;
  return outputs(flash_attention(ctx, in[0], in[1], in[2], p.bias ? in[3] : Var(), mask));
}

std::vector<Var> by_mask(const Pattern& p, Ctx& ctx, Inputs in) {
  std::vector<double> hidden;
  // A bias has one plane for all samples; its pattern then does, too.
  const std::int64_t samples = p.bias ? 1 : p.batch;
  for (std::int64_t b = 0; b < samples; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t at = 0; at < p.tokens * p.tokens; ++at) {
        const bool shown = p.shows(b, h, at / p.tokens, at % p.tokens);
        hidden.push_back(shown ? 0 : -std::numeric_limits<double>::infinity());
      }
    }
  }
  const Tensor host =
      Tensor::from(hidden, {samples, p.heads, p.tokens, p.tokens}, in[0].value().dtype());
  const Var pattern(placed(ctx, host));
  const Var bias = p.bias ? add(ctx, in[3], pattern) : pattern;
  return outputs(reference_attention(ctx, in[0], in[1], in[2], bias, mask_of(p, ctx, in)));
}

OpCase case_of(const char* name, const Pattern& p) {
  OpCase out{.name = name,
             .inputs = {{{p.batch, p.heads, p.tokens, p.width}},
                        {{p.batch, p.kv_heads, p.tokens, p.width}},
                        {{p.batch, p.kv_heads, p.tokens, p.value_width}}},
             .run = nullptr};
  if (p.segments) out.inputs.push_back({{p.batch, p.tokens}, CaseInput::Kind::ids, 0, 2});
  if (p.bias) out.inputs.push_back({{1, p.heads, p.tokens, p.tokens}});
  out.run = [p](Ctx& ctx, Inputs in) { return by_plan(p, ctx, in); };
  out.composition = [p](Ctx& ctx, Inputs in) { return by_mask(p, ctx, in); };
  return out;
}

// A window, two global keys, a global query, and samples of 70 and 50 tokens.
std::vector<PlanRule> window_rules() {
  PlanRule r;
  r.rule.left = 20;
  r.rule.right = 10;
  r.rule.first_keys = 2;
  r.rule.first_queries = 1;
  const double lengths[] = {70, 50};
  r.query_lengths = r.key_lengths = Tensor::from(lengths, {2}, DType::i32);
  return {r};
}
bool window_shows(std::int64_t sample, std::int64_t /*head*/, std::int64_t i, std::int64_t j) {
  const std::int64_t length = sample == 0 ? 70 : 50;
  if (i >= length || j >= length) return false;
  return (i - 20 <= j && j <= i + 10) || j < 2 || i < 1;
}

// Even heads: the first block and the query's own, of which a word of bits shows about half. Odd
// heads: every third key back.
constexpr std::int64_t kWordTokens = 130, kWordBlocks = 3;
bool word_shows(std::int64_t i, std::int64_t j) {
  return (7 * i + 3 * j) % 5 < 2;
}
std::vector<PlanRule> word_rules() {
  PlanRule words, strided;
  std::vector<double> list;
  const Tensor bits = Tensor::empty({1, kWordBlocks, 2, 64}, DType::i64, kCpu);
  for (std::int64_t row = 0; row < kWordBlocks; ++row) {
    for (std::int64_t entry = 0; entry < 2; ++entry) {
      const std::int64_t column = entry * row;
      list.push_back(static_cast<double>(column));
      for (std::int64_t at = 0; at < 64; ++at) {
        std::uint64_t word = 0;
        for (std::int64_t bit = 0; bit < 64; ++bit) {
          if (word_shows(64 * row + at, 64 * column + bit)) word |= std::uint64_t{1} << bit;
        }
        bits.view().ptr<std::uint64_t>()[(row * 2 + entry) * 64 + at] = word;
      }
    }
  }
  words.list = Tensor::from(list, {1, kWordBlocks, 2}, DType::i32);
  words.list_words = bits;
  strided.rule.stride = 3;
  return {words, strided};
}
bool words_show(std::int64_t /*sample*/, std::int64_t head, std::int64_t i, std::int64_t j) {
  if (head % 2 != 0) return (i - j) % 3 == 0;
  return (j / 64 == 0 || j / 64 == i / 64) && word_shows(i, j);
}

// Of slots: the own block of 16 and the one before.
constexpr std::int64_t kQueryStep = 3, kKeyStep = 9;
std::vector<PlanRule> slot_rules() {
  PlanRule r;
  r.rule.block = 16;
  r.rule.block_left = 1;
  r.rule.in_slots = true;
  return {r};
}
std::int64_t slot_of(std::int64_t token, std::int64_t step) {
  std::int64_t slot = 0;
  while (slot * step % 70 != token)
    ++slot;
  return slot;
}
bool slots_show(std::int64_t /*sample*/, std::int64_t /*head*/, std::int64_t i, std::int64_t j) {
  const std::int64_t back = slot_of(i, kQueryStep) / 16 - slot_of(j, kKeyStep) / 16;
  return back == 0 || back == 1;
}

std::vector<PlanRule> dilated_rules() {
  PlanRule r;
  r.rule.left = 40;
  r.rule.dilation = 2;
  return {r};
}
bool dilated_shows(std::int64_t /*sample*/, std::int64_t /*head*/, std::int64_t i, std::int64_t j) {
  return i - 40 <= j && j <= i && (i - j) % 2 == 0;
}

}  // namespace

// Used by attention_cases.cpp.
std::vector<OpCase> attention_plan_cases() {
  return {
      case_of("a plan: window, global tokens, lengths",
              {.batch = 2, .heads = 4, .rules = window_rules, .shows = window_shows}),
      case_of("a plan: words of blocks and strides, heads in turn, causal",
              {.tokens = kWordTokens,
               .rules = word_rules,
               .shows = words_show,
               .mask = {.causal = true}}),
      case_of("a plan: blocks of slots in an order, by segments too", {.value_width = 16,
                                                                       .rules = slot_rules,
                                                                       .shows = slots_show,
                                                                       .query_step = kQueryStep,
                                                                       .key_step = kKeyStep,
                                                                       .counts_tokens = true,
                                                                       .segments = true}),
      case_of("a plan under a cap, a bias and dropout, odd widths",
              {.batch = 2,
               .kv_heads = 1,
               .width = 5,
               .value_width = 3,
               .rules = dilated_rules,
               .shows = dilated_shows,
               .mask = {.causal = true, .softcap = 2, .dropout = 0.25},
               .bias = true}),
  };
}

}  // namespace fovea
