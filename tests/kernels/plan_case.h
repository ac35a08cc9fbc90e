#pragma once
// A random tile plan, and what it means told element by element from tile_rule.h's words alone.

#include <cstring>
#include <map>
#include <numeric>

#include "kernels/attention_problem.h"
#include "kernels/tile_plan.h"

namespace fovea::test {

// Draws in order; the same for the same seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : stream_(seed, "plan") {}
  // In [low, high].
  std::int32_t in(std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(low +
                                     static_cast<std::int64_t>(stream_.below(
                                         next_++, static_cast<std::uint64_t>(high - low + 1))));
  }
  bool one_of(int n) { return in(1, n) == 1; }

 private:
  NamedStream stream_;
  std::uint64_t next_ = 0;
};

struct PlanCase {
  Sizes s;
  bool causal = false;
  std::vector<TileRule> rules;
  TilePlan plan;
  AttentionScores masks;  // valid and segments
  std::vector<Tensor> kept;
  std::vector<std::int64_t> query_slot, key_slot;  // [B,H,N], [B,Hk,M]

  std::int64_t offset() const { return s.m - s.n; }

  Tensor keep(Tensor t) {
    kept.push_back(t);
    return t;
  }
  Tensor ints(Shape shape, const std::vector<double>& values) {
    return keep(Tensor::from(values, shape, DType::i32));
  }
  Tensor space(Shape shape, DType dtype) { return keep(Tensor::empty(shape, dtype, kCpu)); }

  void orders(Draw& draw, bool by_sample, bool by_head) {
    const auto make = [&](std::int64_t heads, std::int64_t tokens,
                          std::vector<std::int64_t>& slot) {
      const std::int64_t rows = by_sample ? s.b : 1, columns = by_head ? heads : 1;
      std::vector<double> order;
      slot.assign(static_cast<std::size_t>(s.b * heads * tokens), 0);
      for (std::int64_t r = 0; r < rows * columns; ++r) {
        const Permutation shuffled(static_cast<std::uint64_t>(tokens),
                                   static_cast<std::uint64_t>(draw.in(0, 1 << 20)), "order");
        for (std::int64_t t = 0; t < tokens; ++t)
          order.push_back(static_cast<double>(shuffled.at(static_cast<std::uint64_t>(t))));
      }
      for (std::int64_t b = 0; b < s.b; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t from = ((by_sample ? b : 0) * columns + (by_head ? h : 0)) * tokens;
          for (std::int64_t t = 0; t < tokens; ++t) {
            const auto token = static_cast<std::int64_t>(order[static_cast<std::size_t>(from + t)]);
            slot[static_cast<std::size_t>((b * heads + h) * tokens + token)] = t;
          }
        }
      }
      return ints({rows, columns, tokens}, order).view();
    };
    plan.query_order = make(s.h, s.n, query_slot);
    plan.key_order = make(s.hk, s.m, key_slot);
    if (by_sample) plan.batches = static_cast<std::int32_t>(s.b);
  }

  void build(std::int64_t capacity = -1) {
    const std::int64_t plans = std::int64_t{plan.batches} * plan.heads, q = plan_tiles(s.n),
                       k = plan_tiles(s.m);
    if (capacity < 0) capacity = q * k;
    const Tensor bytes =
        space({plan.heads, static_cast<std::int64_t>(sizeof(TileRule))}, DType::u8);
    std::memcpy(bytes.view().data, rules.data(), rules.size() * sizeof(TileRule));
    plan.rules = bytes.view();
    const auto list = [&](std::int64_t n) {
      const Tensor t = space({plans, n}, DType::i32);
      std::fill_n(t.data<std::int32_t>(), t.numel(), -7);
      return t.view();
    };
    plan.begin = list(q + 1), plan.full = list(q), plan.key_tiles = list(capacity);
    plan.key_begin = list(k + 1), plan.key_full = list(k), plan.query_tiles = list(capacity);
    plan.needed = space({plans}, DType::i32).view();
    AttentionScores scores = masks;
    scores.causal = causal;
    Stream stream(kCpu);
    cpu::tile_plan_build(stream.ref(), plan, scores, s.n, s.m, s.h, s.hk);
  }

  // Whether what the rules point to is as large as what is read: else every result is chance.
  bool covered() const {
    const auto has = [&](const void* at, std::int64_t stride, std::int64_t sample) {
      for (const Tensor& t : kept) {
        if (t.view().data == at) return t.numel() >= stride * (s.b - 1) + sample;
      }
      return at == nullptr;
    };
    return std::all_of(rules.begin(), rules.end(), [&](const TileRule& r) {
      const std::int64_t entries = (s.m + r.block - 1) / r.block * r.list_width;
      return has(r.key_flags, r.key_flags_batch, plan_tiles(s.m)) &&
             has(r.query_flags, r.query_flags_batch, plan_tiles(s.n)) &&
             has(r.list, r.list_batch, entries) &&
             has(r.list_words, r.list_words_batch, entries * kPlanTile) &&
             (r.list_words == nullptr || r.block == kPlanTile) && has(r.query_lengths, 1, 1) &&
             has(r.key_lengths, 1, 1);
    });
  }

  // The predicate, one element at a time.
  static bool flag(const std::uint64_t* bits, std::int64_t stride, std::int64_t b, std::int64_t t) {
    return bits != nullptr && (bits[b * stride + t / 64] >> (t % 64) & 1) != 0;
  }
  static bool shows(const TileRule& r, std::int64_t b, std::int64_t i, std::int64_t p,
                    std::int64_t j) {
    bool any_term = false, seen = false;
    const auto term = [&](bool set, auto&& test) {
      any_term = any_term || set;
      if (set && p >= 0) seen = seen || test();
    };
    if (r.stair_width > 0) {
      any_term = true;
      seen = j < r.stair_width * (i / r.stair_block - r.stair_lag);
    }
    term(r.left >= 0,
         [&] { return p - r.left <= j && j <= p + r.right && (p - j) % r.dilation == 0; });
    term(r.stride > 0, [&] { return (p - j) % r.stride == 0; });
    term(r.period > 0, [&] { return j % r.period >= r.column_from && j % r.period < r.column_to; });
    term(r.block_left >= 0, [&] {
      const std::int64_t apart = j / r.block - p / r.block;
      return -r.block_left <= apart && apart <= r.block_right;
    });
    term(r.first_keys > 0, [&] { return j < r.first_keys; });
    term(r.last_keys != kNoToken, [&] { return j >= r.last_keys; });
    term(r.first_queries > 0, [&] { return p < r.first_queries; });
    term(r.last_queries != kNoToken, [&] { return p >= r.last_queries; });
    term(r.key_flags != nullptr, [&] { return flag(r.key_flags, r.key_flags_batch, b, j); });
    term(r.query_flags != nullptr, [&] { return flag(r.query_flags, r.query_flags_batch, b, i); });
    term(r.list != nullptr, [&] {
      for (std::int64_t e = 0; e < r.list_width; ++e) {
        const std::int64_t entry = p / r.block * r.list_width + e;
        if (r.list[b * r.list_batch + entry] != j / r.block) continue;
        if (r.list_words == nullptr) return true;
        const std::uint64_t word = r.list_words[b * r.list_words_batch + entry * 64 + p % 64];
        if ((word >> (j % 64) & 1) != 0) return true;
      }
      return false;
    });
    return !any_term || seen;
  }
  std::int64_t slot_of_query(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return query_slot.empty() ? i : query_slot[static_cast<std::size_t>((b * s.h + h) * s.n + i)];
  }
  std::int64_t slot_of_key(std::int64_t b, std::int64_t h, std::int64_t j) const {
    const std::int64_t kv = h / (s.h / s.hk);
    return key_slot.empty() ? j : key_slot[static_cast<std::size_t>((b * s.hk + kv) * s.m + j)];
  }
  static bool valid(const View& mask, std::int64_t b, std::int64_t t) {
    return !mask || mask.ptr<std::uint8_t>()[b * mask.stride[0] + t * mask.stride[1]] != 0;
  }
  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, bool tokens) const {
    const TileRule& r = rules[static_cast<std::size_t>(h % plan.heads)];
    if (causal && j > i + offset()) return false;
    if (r.hides_own && i == j) return false;
    if (r.query_lengths != nullptr && i >= r.query_lengths[b]) return false;
    if (r.key_lengths != nullptr && j >= r.key_lengths[b]) return false;
    if (tokens && (!valid(masks.query_valid, b, i) || !valid(masks.key_valid, b, j))) return false;
    if (tokens && masks.query_segments) {
      const View &q = masks.query_segments, &k = masks.key_segments;
      if (q.ptr<std::int32_t>()[b * q.stride[0] + i] != k.ptr<std::int32_t>()[b * k.stride[0] + j])
        return false;
    }
    return r.in_slots ? shows(r, b, i, slot_of_query(b, h, i) + offset(), slot_of_key(b, h, j))
                      : shows(r, b, i, i + offset(), j);
  }
};

// Sets random terms of a rule; what lives in memory is kept by the case. Ragged and tiny sizes,
// dense and empty patterns come up.
inline TileRule random_rule(PlanCase& c, Draw& draw) {
  TileRule r;
  const Sizes& s = c.s;
  const std::int64_t most = std::max(s.n, s.m);
  const int terms = draw.in(0, 3);  // 0: everything
  bool block_chosen = false;
  const auto choose_block = [&](std::int32_t wanted) {
    if (!block_chosen) r.block = wanted;
    block_chosen = true;
  };
  for (int t = 0; t < terms; ++t) {
    switch (draw.in(0, 8)) {
      case 0:
        r.left = draw.in(0, draw.one_of(2) ? 4 : most);
        r.right = draw.in(0, draw.one_of(2) ? 4 : most);
        r.dilation = draw.one_of(2) ? 1 : draw.in(1, 9);
        break;
      case 1:
        r.stride = draw.in(1, draw.one_of(2) ? 8 : 100);
        break;
      case 2:
        r.period = draw.in(1, draw.one_of(2) ? 12 : 130);
        r.column_from = draw.in(0, r.period - 1);
        r.column_to = draw.in(r.column_from + 1, r.period);
        break;
      case 3:
        choose_block(draw.in(1, 100));
        r.block_left = draw.in(0, 2);
        r.block_right = draw.in(0, 2);
        break;
      case 4:
        r.first_keys = draw.in(0, s.m);
        if (draw.one_of(2)) r.last_keys = draw.in(0, s.m);
        break;
      case 5:
        r.first_queries = draw.in(0, s.n);
        if (draw.one_of(2)) r.last_queries = draw.in(0, s.m);
        break;
      case 6: {
        const bool keys = draw.one_of(2);
        const std::int64_t tokens = keys ? s.m : s.n;
        const bool by_sample = draw.one_of(2);
        std::vector<double> flags;
        for (std::int64_t f = 0; f < (by_sample ? s.b : 1) * tokens; ++f)
          flags.push_back(draw.one_of(20) ? 1 : 0);
        const Tensor marks = mask_tensor({by_sample ? s.b : 1, tokens}, DType::u8, flags);
        const Tensor bits = c.space({marks.size(0), plan_tiles(tokens)}, DType::i64);
        Stream stream(kCpu);
        cpu::pack_flags(stream.ref(), bits.view(), marks.view());
        (keys ? r.key_flags : r.query_flags) = bits.view().ptr<std::uint64_t>();
        (keys ? r.key_flags_batch : r.query_flags_batch) = by_sample ? plan_tiles(tokens) : 0;
        if (by_sample) c.plan.batches = static_cast<std::int32_t>(s.b);
        break;
      }
      case 7:
      case 8: {
        const bool words = draw.one_of(2);
        choose_block(words || draw.one_of(2) ? 64 : draw.in(5, 90));
        const bool by_sample = draw.one_of(2);
        const std::int64_t rows = (s.m + r.block - 1) / r.block, samples = by_sample ? s.b : 1;
        r.list_width = draw.in(1, 2);
        std::vector<double> list;
        for (std::int64_t e = 0; e < samples * rows * r.list_width; ++e)
          list.push_back(draw.in(-1, rows - 1));
        r.list = c.ints({samples, rows, r.list_width}, list).data<std::int32_t>();
        r.list_batch = by_sample ? rows * r.list_width : 0;
        r.list_words = nullptr;  // those of an earlier list are too few
        r.list_words_batch = 0;
        if (by_sample) c.plan.batches = static_cast<std::int32_t>(s.b);
        if (!words || r.block != 64) break;
        const Tensor bits = c.space({samples, rows * r.list_width * 64}, DType::i64);
        const NamedStream noise(static_cast<std::uint64_t>(draw.in(0, 1000)), "words");
        for (std::int64_t w = 0; w < bits.numel(); ++w) {
          const auto at = static_cast<std::uint64_t>(w);
          bits.view().ptr<std::uint64_t>()[w] = noise.bits64(2 * at) & noise.bits64(2 * at + 1);
        }
        r.list_words = bits.view().ptr<std::uint64_t>();
        r.list_words_batch = by_sample ? bits.size(1) : 0;
        break;
      }
      default:
        break;
    }
  }
  if (!c.plan.query_order && draw.one_of(6)) {
    r.stair_width = draw.in(1, draw.one_of(2) ? 4 : 40);
    r.stair_block = draw.in(1, draw.one_of(2) ? 9 : 90);
    r.stair_lag = draw.in(0, 2);
  }
  r.hides_own = draw.one_of(6);
  if (draw.one_of(4)) {
    std::vector<double> lengths;
    for (std::int64_t b = 0; b < s.b; ++b)
      lengths.push_back(draw.in(0, s.m));
    r.key_lengths = c.ints({s.b}, lengths).data<std::int32_t>();
    c.plan.batches = static_cast<std::int32_t>(s.b);
  }
  if (draw.one_of(6)) {
    std::vector<double> lengths;
    for (std::int64_t b = 0; b < s.b; ++b)
      lengths.push_back(draw.in(0, s.n));
    r.query_lengths = c.ints({s.b}, lengths).data<std::int32_t>();
    c.plan.batches = static_cast<std::int32_t>(s.b);
  }
  return r;
}

inline PlanCase random_case(std::uint64_t seed) {
  Draw draw(seed);
  PlanCase c;
  Sizes& s = c.s;
  s.b = draw.in(1, 2);
  s.hk = draw.in(1, 2);
  s.h = s.hk * draw.in(1, 2);
  const auto length = [&] { return draw.one_of(10) ? 1 : draw.in(1, draw.one_of(3) ? 260 : 100); };
  s.n = length();
  s.m = draw.one_of(3) ? length() : s.n;
  s.d = draw.in(1, 9);
  s.dv = draw.in(1, 9);
  c.causal = draw.one_of(2);
  const std::int32_t heads[] = {1, 2, static_cast<std::int32_t>(s.h)};
  c.plan.heads = heads[draw.in(0, 2)];
  if (s.h % c.plan.heads != 0) c.plan.heads = 1;
  const bool ordered = draw.one_of(3), by_head = ordered && draw.one_of(2);
  if (by_head) c.plan.heads = static_cast<std::int32_t>(s.h);
  if (ordered) c.orders(draw, draw.one_of(2), by_head);
  const bool in_slots = draw.one_of(2);
  for (std::int32_t h = 0; h < c.plan.heads; ++h) {
    c.rules.push_back(random_rule(c, draw));
    c.rules.back().in_slots = in_slots;
  }
  const auto marks = [&](std::int64_t tokens, DType dtype, auto&& value) {
    std::vector<double> values;
    for (std::int64_t b = 0; b < s.b; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t)
        values.push_back(value(t));
    }
    return c.keep(Tensor::from(values, {s.b, tokens}, dtype)).view();
  };
  if (draw.one_of(3)) {
    c.masks.key_valid = marks(s.m, DType::u8, [&](std::int64_t) { return draw.one_of(8) ? 0 : 1; });
    if (draw.one_of(2))
      c.masks.query_valid =
          marks(s.n, DType::u8, [&](std::int64_t) { return draw.one_of(8) ? 0 : 1; });
  }
  if (draw.one_of(4)) {
    const std::int32_t each = draw.in(1, 90);
    const auto segment = [&](std::int64_t t) { return t / each; };
    c.masks.query_segments = marks(s.n, DType::i32, segment);
    c.masks.key_segments = marks(s.m, DType::i32, segment);
  }
  c.plan.counts_tokens = draw.one_of(2);
  if (c.plan.counts_tokens && (c.masks.key_valid || c.masks.query_segments))
    c.plan.batches = static_cast<std::int32_t>(s.b);
  return c;
}

}  // namespace fovea::test
